"""Joins memory and history to one answer: checks completeness, finds the seam, and merges each partition."""
