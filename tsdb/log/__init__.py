"""The log: append, read, look up by time; groups that share partitions. Kafka and embedded (SQLite) alike."""
