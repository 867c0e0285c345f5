"""Samples from files: a reader for each format, and sending of the rows."""
