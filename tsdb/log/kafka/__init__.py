"""The log on Kafka. No other package in tsdb.log uses confluent-kafka's types."""
