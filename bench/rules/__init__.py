"""Benches of rules: their evaluation each minute beside Prometheus and vmalert, and a backfill on Spark."""
