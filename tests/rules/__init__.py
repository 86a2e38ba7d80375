"""Every rule on facts on which it fires, and beside them the nearest ones on which it is quiet."""
