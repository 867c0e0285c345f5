"""Benchmarks of the parallel consumer and of the chain headers."""
