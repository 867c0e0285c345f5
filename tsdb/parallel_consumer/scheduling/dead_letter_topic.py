"""DeadLetterTopic: looks up the dead letter topic before anything is read. A missing topic would block the first dead
letter, and with it in the end the consumer.
"""

from __future__ import annotations

from tsdb.parallel_consumer.errors import ConsumerError
from tsdb.parallel_consumer.producer import Producer, TopicProducer


class DeadLetterTopic:
    """name: empty where nothing is ever sent. Without topic lookup in the producer every name is accepted."""

    def __init__(self, name: str, producer: Producer | None) -> None:
        self.name = name
        self._producer = producer if isinstance(producer, TopicProducer) and name else None
        self._partitions: int | None = None

    def found(self) -> bool:
        """Whether the topic exists or none is needed; False while no broker answers. Raises ConsumerError when it is
        missing.
        """
        if self._producer is not None and self._partitions is None:
            try:
                self._partitions = self._producer.partitions_of(self.name)
            except ConsumerError as error:
                raise ConsumerError(f"dead-letter {error.message}", reason=error.reason) from error
        return self._producer is None or self._partitions is not None

    def partition_of(self, partition: int) -> int:
        """Target partition of a dead letter: the partition number of the record, modulo the partition count of the
        topic."""
        return partition if self._partitions is None else partition % self._partitions
