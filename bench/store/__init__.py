"""Benchmarks of a store: replay, memory and reads."""
