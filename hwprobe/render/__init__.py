"""Output formats: each turns a Check into text."""
