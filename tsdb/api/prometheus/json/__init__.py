"""JSON of query results, as Prometheus writes it."""
