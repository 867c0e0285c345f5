"""A log in front of the real one that delays records or does not answer, and a clock that can jump."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast

from support.servers.logs import WITHIN_S
from tsdb.log.interface import METRICS, Event, Log, LogReader, TopicPartition, Watermarks
from tsdb.model.clock import SystemClock
from tsdb.model.errors import Unavailable


class HeldLog:
    """All other calls go to the real log. Readers of the real log open when records are first let through.

    `hold`, `release`: whether records are delivered. `away`: no request is answered and no records are delivered.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self.let_through = threading.Event()
        self.let_through.set()
        self.parked = threading.Event()  # A reader has come while records were held.
        self.away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    @property
    def log(self) -> Log:
        """This object, typed as a Log."""
        return cast(Log, self)

    def hold(self) -> None:
        """Stop delivering records of the log."""
        self.parked.clear()
        self.let_through.clear()

    def hold_now(self) -> None:
        """Hold, and wait until no running poll can deliver further records. For one reader."""
        self.hold()
        assert self.parked.wait(WITHIN_S), "no reader polls"

    def release(self) -> None:
        """Deliver all records again."""
        self.let_through.set()

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, Watermarks]:
        if self.away:
            raise Unavailable("no answer", reason="timeout")
        return self._log.watermarks(topic, partitions)

    def high_watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return {partition: marks.high for partition, marks in self.watermarks(topic, partitions).items()}

    def reader(
        self, starts: Mapping[TopicPartition, int], *, prefetch_bytes: int | None = None, linger_s: float = 0.0
    ) -> LogReader:
        # Short reads (prefetch_bytes) look up the log's ends. Only a replay must wait.
        if prefetch_bytes is not None or any(topic != METRICS for topic, _ in starts):
            return self._log.reader(starts, prefetch_bytes=prefetch_bytes, linger_s=linger_s)
        return cast(LogReader, _HeldReader(self, self._log, starts))


class _HeldReader:
    def __init__(self, held: HeldLog, log: Log, starts: Mapping[TopicPartition, int]) -> None:
        self._held = held
        self._log = log
        self._starts = starts
        self._reader: LogReader | None = None

    def poll(self, timeout_s: float, *, max_records: int, max_bytes: int = 1 << 25) -> list[Event]:
        if self._held.away:
            threading.Event().wait(timeout_s)
            return []
        if not self._held.let_through.is_set():
            self._held.parked.set()
        if not self._held.let_through.wait(timeout_s):
            return []
        self._reader = self._reader or self._log.reader(self._starts)
        return self._reader.poll(timeout_s, max_records=max_records, max_bytes=max_bytes)

    def wake(self) -> None:
        """Its polls are short while nothing is held."""
        if self._reader is not None:
            self._reader.wake()

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        assert self._reader is not None, "a replay seeks after a poll"
        self._reader.seek(topic, partition, next_offset)

    def pause(self, topic: str, partition: int) -> None:
        assert self._reader is not None, "a replay lets rest after a poll"
        self._reader.pause(topic, partition)

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


class JumpingClock(SystemClock):
    """The machine's clocks. On request wall and monotonic time move forward together."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def jump(self, seconds: float) -> None:
        """Move both clocks forward."""
        self._ahead_s += seconds

    def now_ms(self) -> int:
        return super().now_ms() + round(self._ahead_s * 1000)

    def monotonic(self) -> float:
        return super().monotonic() + self._ahead_s
