"""Benchmarks: one module each; `python -m bench NAME` prints one JSON object last. Figures: docs/benchmarks.md."""
