"""Reads samples from files, with a reader for each format, and sends the rows."""
