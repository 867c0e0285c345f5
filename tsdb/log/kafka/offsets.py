"""Offset lookups: request watermarks and offsets by time, for many partitions in one request each. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, TopicPartition

from tsdb.log.interface import Watermarks
from tsdb.log.kafka.clients import GRACE_S, LOOKUP, Renewed, bounded
from tsdb.log.kafka.errors import RETRY_AFTER_S, to_error
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError, Unavailable

RETRY_S = 0.1  # Pause while a partition has no leader, or its broker has just started.


class KafkaOffsets:
    """Uses a separate consumer without an assignment. Only for topics and partitions that are known to exist."""

    def __init__(
        self,
        make_consumer: Callable[[], Consumer],
        kafka_name: Callable[[str], str],
        clock: Clock,
        timeout_s: float,
        grace_s: float = GRACE_S,
    ) -> None:
        self._clients: Renewed[Consumer] = Renewed(LOOKUP, make_consumer, clock, end=lambda consumer: consumer.close())
        self._kafka_name = kafka_name
        self._clock = clock
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._lock = threading.Lock()  # Allows one request at a time, because the consumer refuses concurrent calls.
        self._closed = False  # Guarded by the lock.

    def watermarks(self, topic: str, partitions: list[int]) -> dict[int, Watermarks]:
        """Watermarks from the leaders of the partitions. low is requested first, so that low <= high in every
        answer."""
        # Two ListOffsets requests in total (0.2 ms each for 16 partitions); get_watermark_offsets sends 2 for each
        # partition.
        lows = self._list_offsets(topic, dict.fromkeys(partitions, OFFSET_BEGINNING))
        highs = self.high_watermarks(topic, partitions)
        return {partition: Watermarks(lows[partition], highs[partition]) for partition in partitions}

    def high_watermarks(self, topic: str, partitions: list[int]) -> dict[int, int]:
        """High watermarks from the leaders of the partitions, by one request."""
        return self._list_offsets(topic, dict.fromkeys(partitions, OFFSET_END))

    def for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        """First offset with broker time >= ms. Negative times become 0: for Kafka they request an end of the log."""
        found = self._list_offsets(topic, {partition: max(0, ms) for partition, ms in times_ms.items()})
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def close(self) -> None:
        """Close the consumer; waits for a request in progress. Later requests are refused."""
        with self._lock:
            self._closed = True
            self._clients.close(lambda consumer: consumer.close())

    def _list_offsets(self, topic: str, wanted: Mapping[int, int]) -> dict[int, int]:
        give_up_at = self._clock.monotonic() + self._timeout_s
        answers: dict[int, int] = {}
        while True:
            left_s = max(0.1, give_up_at - self._clock.monotonic())
            error = self._request(topic, {p: at for p, at in wanted.items() if p not in answers}, answers, left_s)
            if error is None:
                return answers
            if not isinstance(error, Unavailable) or self._clock.monotonic() > give_up_at:
                raise error
            self._clock.sleep(RETRY_S)

    def _request(
        self, topic: str, wanted: Mapping[int, int], answers: dict[int, int], timeout_s: float
    ) -> TsdbError | None:
        """Send one request. Adds to the answers and returns the first error."""
        requested = [TopicPartition(self._kafka_name(topic), partition, at) for partition, at in wanted.items()]
        try:
            got = self._ask(f"offsets of topic {topic}", requested, timeout_s)
        except TsdbError as error:
            return _known_to_exist(error)
        answers.update({answer.partition: answer.offset for answer in got if answer.error is None})
        for answer in got:
            if answer.error is not None:
                place = f"offsets of topic {topic}, partition {answer.partition}"
                return _known_to_exist(to_error(answer.error, place))
        return None

    def _ask(self, place: str, requested: list[TopicPartition], timeout_s: float) -> list[TopicPartition]:
        """The library's answer. Raises Unavailable (timeout) without an answer, also while an earlier request waits for
        an answer."""
        if not self._lock.acquire(timeout=timeout_s):
            text = f"{place}: earlier requests have no answer"
            raise Unavailable(text, reason="timeout", retry_after_s=RETRY_AFTER_S)
        try:
            if self._closed:
                raise Unavailable(f"{place}: the log is closed", reason="log_closed")
            return self._ask_locked(place, requested, timeout_s)
        finally:
            self._lock.release()

    def _ask_locked(self, place: str, requested: list[TopicPartition], timeout_s: float) -> list[TopicPartition]:
        consumer = self._clients.get()
        try:
            answers: list[TopicPartition] = bounded(
                lambda: consumer.offsets_for_times(requested, timeout=timeout_s), timeout_s + self._grace_s, place
            )
        except Unavailable as error:
            self._clients.failed(consumer, hung=error.reason == "timeout")
            raise
        self._clients.answered(consumer)
        return answers


def _known_to_exist(error: TsdbError) -> TsdbError:
    """Returns Unavailable in place of an unknown topic, because a broker that has just started does not know its topics
    yet. Only the topic guard decides that a topic is gone."""
    if error.reason not in ("unknown_partition", "unknown_topic"):
        return error
    return Unavailable(error.message, reason="log_unavailable", retry_after_s=RETRY_AFTER_S)
