"""Benchmarks of the chunk stage and of the codec."""
