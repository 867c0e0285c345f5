"""Requests: parameters of a request, read as Prometheus reads them."""
