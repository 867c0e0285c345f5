"""Runs roles beside production: shadows of its reads, and experiments over its log."""
