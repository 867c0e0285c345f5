"""Blocks of Prometheus, read by ourselves: index, chunk segments, tombstones (docs/formats/prometheus-block.md)."""
