"""The terminal: rows, progress, sparklines and errors as people and machines read them."""
