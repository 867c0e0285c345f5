"""Streams of the log: read micro-batches of samples, with the position in the checkpoint of the query."""
