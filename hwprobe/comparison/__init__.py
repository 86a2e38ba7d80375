"""Training the same model in each precision variant, side by side, and telling the difference."""
