"""The ops HTTP server: probes and metrics, with limits of connections."""
