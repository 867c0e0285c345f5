"""Syntax of PromQL: from text to a checked tree, and back to text. Nothing here reads a sample."""
