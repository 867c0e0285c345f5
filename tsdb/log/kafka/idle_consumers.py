"""Idle consumers: consumers of closed readers, without partitions, for later readers with the same settings.

A new consumer connects, starts threads and requests metadata before its first record comes. Tasks that read many short
stretches of the log would pay that for each stretch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException

Kind = tuple[int | None, float]  # The settings in which readers differ: prefetch_bytes, linger_s.


class IdleConsumers:
    """Keeps at most `count`. Thread-safe."""

    def __init__(self, make: Callable[[Kind], Consumer], count: int) -> None:
        self._make = make
        self._count = count
        self._lock = threading.Lock()  # Guards the fields below; no call of a consumer is made under it.
        self._idle: list[tuple[Kind, Consumer]] = []
        self._closed = False

    def take(self, kind: Kind) -> Consumer:
        """An idle consumer of this kind, or a new one."""
        with self._lock:
            for at, (idle_kind, consumer) in enumerate(self._idle):
                if idle_kind == kind:
                    del self._idle[at]
                    return consumer
        return self._make(kind)

    def give_back(self, kind: Kind, consumer: Consumer) -> None:
        """Keep a consumer that no reader uses any more, or close it. Its fetched records are dropped."""
        try:
            consumer.unassign()
        except KafkaException:
            consumer.close()
            return
        with self._lock:
            # The newest are kept: those of kinds that are in use now.
            self._idle.append((kind, consumer))
            surplus = self._idle if self._closed else self._idle[: -self._count or None]
            self._idle = self._idle[len(surplus) :]
        for _, each in surplus:
            each.close()

    def close(self) -> None:
        """Close all idle consumers, and each that is given back later."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for _, consumer in idle:
            consumer.close()
