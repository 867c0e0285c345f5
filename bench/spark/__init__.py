"""Benchmarks of the jobs on Spark."""
