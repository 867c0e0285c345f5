"""Decoding of answers: frames of the wire become arrays."""
