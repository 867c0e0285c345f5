"""Answers: frames of the wire become arrays, and arrays become tables."""
