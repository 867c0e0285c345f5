"""Samples from files: readers of each format, and the ways of sending what they read."""
