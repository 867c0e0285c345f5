"""kafka-tsdb: a time-series store whose write-ahead log is Kafka."""
