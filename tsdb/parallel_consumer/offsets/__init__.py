"""Offsets of a partition: which records are finished, and how a commit stores it."""
