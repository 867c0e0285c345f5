"""The gateway: requests of several protocols in, log records out. OK means that the log has every accepted sample."""
