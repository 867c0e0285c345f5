"""What every process needs around its work: metrics, logs, health, servers, credentials, an orderly end."""
