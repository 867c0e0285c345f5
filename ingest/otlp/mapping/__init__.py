"""Mapping: OTLP's metrics, resources and points as series of Prometheus."""
