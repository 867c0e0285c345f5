"""Executors: run a handler on threads, an event loop, other processes or the consumer's thread."""
