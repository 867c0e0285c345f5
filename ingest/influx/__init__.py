"""Influx line protocol: decodes bytes to rows, and has the HTTP routes of InfluxDB 1 and 2 that its senders use."""
