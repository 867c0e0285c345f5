"""Reads Prometheus blocks: index, chunk segments, tombstones (docs/formats/prometheus-block.md)."""
