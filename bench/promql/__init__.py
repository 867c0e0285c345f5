"""These benchmarks measure PromQL and the Prometheus HTTP API."""
