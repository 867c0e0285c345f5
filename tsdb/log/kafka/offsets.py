"""Questions about offsets: watermarks and time lookups, for many partitions in one request each. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition

from tsdb.log.interface import Watermarks
from tsdb.log.kafka.errors import RETRY_AFTER_S, is_passing, to_error, translate_kafka_errors
from tsdb.model.clock import Clock
from tsdb.model.errors import InvalidRequest, Unavailable

RETRY_S = 0.1  # While a partition has no leader.


class KafkaOffsets:
    """Asks with a consumer of its own that is assigned nothing. Of topics and partitions that are known to exist."""

    def __init__(self, consumer: Consumer, kafka_name: Callable[[str], str], clock: Clock, timeout_s: float) -> None:
        self._consumer = consumer
        self._kafka_name = kafka_name
        self._clock = clock
        self._timeout_s = timeout_s
        self._lock = threading.Lock()  # One question at a time: the consumer refuses concurrent calls.

    def watermarks(self, topic: str, partitions: list[int]) -> dict[int, Watermarks]:
        """Fresh from the partitions' leaders; low is asked first, so that low <= high in every answer."""
        # Two ListOffsets requests in all (0.2 ms each for 16 partitions); get_watermark_offsets makes two a partition.
        lows = self._list_offsets(topic, dict.fromkeys(partitions, OFFSET_BEGINNING))
        highs = self._list_offsets(topic, dict.fromkeys(partitions, OFFSET_END))
        return {partition: Watermarks(lows[partition], highs[partition]) for partition in partitions}

    def for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        """First offset with broker time >= ms. Negative times are no times to Kafka, but requests for an end."""
        found = self._list_offsets(topic, {partition: max(0, ms) for partition, ms in times_ms.items()})
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def close(self) -> None:
        """Release."""
        with self._lock:
            self._consumer.close()

    def _list_offsets(self, topic: str, what: Mapping[int, int]) -> dict[int, int]:
        name = self._kafka_name(topic)
        give_up_at = self._clock.monotonic() + self._timeout_s
        answers: dict[int, int] = {}
        while True:
            asked = [TopicPartition(name, partition, at) for partition, at in what.items() if partition not in answers]
            with _known_to_exist(), self._lock, translate_kafka_errors(f"offsets of topic {topic}"):
                got = self._consumer.offsets_for_times(asked, timeout=max(0.1, give_up_at - self._clock.monotonic()))
            failed = [answer for answer in got if answer.error is not None]
            answers.update({answer.partition: answer.offset for answer in got if answer.error is None})
            if not failed:
                return answers
            first = failed[0]
            assert first.error is not None, "filtered above"
            if not is_passing(first.error) or self._clock.monotonic() > give_up_at:
                with _known_to_exist():
                    raise to_error(first.error, f"offsets of topic {topic}, partition {first.partition}")
            self._clock.sleep(RETRY_S)


@contextmanager
def _known_to_exist() -> Iterator[None]:
    """A broker that has just started does not know its topics yet. That one is gone, only the topic guard says."""
    try:
        yield
    except InvalidRequest as error:
        raise Unavailable(error.message, reason="log_unavailable", retry_after_s=RETRY_AFTER_S) from error
