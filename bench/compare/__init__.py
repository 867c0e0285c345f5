"""These benches make the comparison of standalone with Prometheus that README.md quotes."""
