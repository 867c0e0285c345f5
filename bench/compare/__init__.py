"""The comparison of standalone with Prometheus that README.md quotes."""
