"""Influx line protocol: bytes to rows, and the HTTP routes of InfluxDB 1 and 2 that its senders use."""
