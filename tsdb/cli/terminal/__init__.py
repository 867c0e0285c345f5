"""The terminal: prints rows, progress, sparklines and errors for people and machines."""
