"""Vectors over steps: keep blocks of values, and label sets as numbers."""
