"""Sink: a log that acknowledges at once, and a call without a deadline, for a gateway measured alone."""

from __future__ import annotations

import time

from bench.ground import PARTITIONS
from tsdb.log.interface import Appended, Headers, OnDone


class Sink:
    """Stores nothing. It has only the methods that a pipeline uses."""

    def __init__(self) -> None:
        self._next = 0

    def topic_id(self, topic: str) -> str:
        return topic

    def partitions(self, topic: str) -> int:
        return PARTITIONS

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        on_done: OnDone,
    ) -> None:
        self._next += 1
        on_done(Appended(partition, self._next, time.time_ns() // 1_000_000))


class NoDeadline:
    """A gRPC context with the one method that the service uses."""

    def time_remaining(self) -> None:
        return None
