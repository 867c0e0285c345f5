"""DeadLetterTopic: the topic of the dead letters, looked for before anything is read: one that is not there would hold
up the first record that is given up, and with it in the end the consumer.
"""

from __future__ import annotations

from tsdb.parallel_consumer.errors import ConsumerError
from tsdb.parallel_consumer.outlet import Outlet, TopicOutlet


class DeadLetterTopic:
    """name: empty where nothing is ever sent. An outlet that knows nothing of topics is not asked."""

    def __init__(self, name: str, outlet: Outlet | None) -> None:
        self.name = name
        self._outlet = outlet if isinstance(outlet, TopicOutlet) and name else None
        self._partitions: int | None = None

    def found(self) -> bool:
        """Whether it is there, or needs not to be; False while nothing answers. Raises ConsumerError when it is not."""
        if self._outlet is not None and self._partitions is None:
            try:
                self._partitions = self._outlet.partitions_of(self.name)
            except ConsumerError as error:
                raise ConsumerError(f"dead-letter {error.message}", reason=error.reason) from error
        return self._outlet is None or self._partitions is not None

    def partition_of(self, partition: int) -> int:
        """Where a letter of a record goes: to the same number, or around where the topic has fewer."""
        return partition if self._partitions is None else partition % self._partitions
