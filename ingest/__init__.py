"""The gateway: protocols in, log records out. An OK means that the log has every accepted sample."""
