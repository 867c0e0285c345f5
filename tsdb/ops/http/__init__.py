"""The ops HTTP server: serves probes and metrics, with limits of connections."""
