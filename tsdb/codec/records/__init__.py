"""Encodes and decodes records of the topics `metrics` and `series`. Layouts: docs/formats."""
