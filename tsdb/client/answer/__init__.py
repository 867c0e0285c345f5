"""Decodes answers: frames of the wire to arrays, and arrays to tables."""
