"""Streams of the log: micro-batches of samples with the position in the checkpoint of the query."""
