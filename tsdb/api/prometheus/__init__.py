"""Serves the HTTP API of Prometheus over the samples of this store."""
