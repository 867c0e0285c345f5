"""Benchmarks of history: its size, its reads and the loader."""
