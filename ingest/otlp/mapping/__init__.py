"""Mapping: converts OTLP's metrics, resources and points to series of Prometheus."""
