"""Benchmarks of PromQL and of the Prometheus HTTP API."""
