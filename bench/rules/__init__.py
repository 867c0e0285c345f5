"""Benches measure rules: each minute beside Prometheus and vmalert, and over days of history on Spark."""
