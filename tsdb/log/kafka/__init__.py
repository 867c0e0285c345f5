"""The log on Kafka. The only package here that knows confluent-kafka's types."""
