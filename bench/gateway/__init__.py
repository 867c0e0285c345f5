"""Benchmarks of writes through a gateway."""
