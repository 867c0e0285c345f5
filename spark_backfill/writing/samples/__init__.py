"""Writes of samples into the log, by the gateway's pipeline: `target=log`, and every stream's sink."""
