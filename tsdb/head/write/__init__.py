"""Writes of a head: decoded records to refs, and their samples into open slices or the late list."""
