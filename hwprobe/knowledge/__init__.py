"""What is true everywhere: TOML tables with a source and a date on every row, and their look-ups."""
