"""Reads Prometheus's rule files, runs their tests, and evaluates their groups."""
