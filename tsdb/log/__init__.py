"""Log: append, read, look up by time, and groups that share partitions; over Kafka or embedded (SQLite)."""
