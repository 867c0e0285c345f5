"""Kafka: implements a source over a consumer group, a producer, and transactions over both.

The client library's types stay in this package.
"""

from tsdb.parallel_consumer.kafka.producer import KafkaProducer
from tsdb.parallel_consumer.kafka.source import KafkaSource
from tsdb.parallel_consumer.kafka.start import EARLIEST, LATEST, Start
from tsdb.parallel_consumer.kafka.transactions import TransactionalSource

__all__ = ["EARLIEST", "LATEST", "KafkaProducer", "KafkaSource", "Start", "TransactionalSource"]
