"""Remote read of Prometheus: returns samples of selectors as one message, or as a stream of chunks in its own
encoding."""
