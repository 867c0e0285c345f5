"""Requests: parses the parameters of a request as Prometheus does."""
