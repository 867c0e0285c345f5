"""Vectors over steps: blocks of values, and label sets as numbers."""
