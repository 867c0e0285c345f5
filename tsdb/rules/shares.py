"""Shares of groups among rulers: which groups a process evaluates. Ownership saves work; results do not depend on it.

Rulers are a consumer group over the partitions of the log, of which they read nothing that way: a group of rules goes
with the partition that its key hashes to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from tsdb.log.interface import METRICS, Log, Position, TopicPartition
from tsdb.model.errors import LostOffsets, Unavailable
from tsdb.model.partitioner import partition_of
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import gauge

GROUP_ID = "rulers"

_owned = gauge(
    "tsdb_ruler_shares", "Shares of the groups of rules that this ruler has; each partition of the log is one."
)

log = get_logger(__name__)


class Shares(Protocol):
    """The groups of a process. One thread makes all calls."""

    def look(self) -> None:
        """Take changes of the shares."""

    def owns(self, group: str) -> bool:
        """Whether this process evaluates the group of this key."""

    def close(self) -> None:
        """Give all shares back."""


class AllShares:
    """Implements Shares of the only ruler."""

    def look(self) -> None:
        pass

    def owns(self, group: str) -> bool:
        return True

    def close(self) -> None:
        pass


class GroupShares:
    """Implements Shares, and GroupListener for its member."""

    def __init__(self, log_: Log) -> None:
        self._log = log_
        self._partitions = log_.partitions(METRICS)
        self._member = log_.group(GROUP_ID, "ruler")
        self._is_joined = False
        self._places: dict[str, int] = {}  # The partition of each group.
        self._mine: set[int] = set()
        self._resting: set[int] = set()

    def look(self) -> None:
        try:
            if not self._is_joined:
                self._member.join([METRICS], self)
                self._is_joined = True
            self._member.poll(0.0)
        except LostOffsets:
            pass  # Nothing is read.
        except Unavailable as error:
            log.warning("shares of rulers not available", reason=error.reason, error=error.message)
        for number in self._mine - self._resting:
            self._member.pause(METRICS, number)
        self._resting = set(self._mine)

    def owns(self, group: str) -> bool:
        place = self._places.get(group)
        if place is None:
            place = self._places[group] = partition_of(group.encode(), self._partitions)
        return place in self._mine

    def close(self) -> None:
        self._member.leave()

    def on_assigned(self, committed: Mapping[TopicPartition, Position | None]) -> Mapping[TopicPartition, int]:
        ends = self._log.high_watermarks(METRICS, [number for _, number in committed])
        self._mine.update(ends)
        self._changed()
        return {(METRICS, number): offset for number, offset in ends.items()}

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self._mine.difference_update(number for _, number in partitions)
        self._changed()

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        self.on_revoked(partitions)

    def _changed(self) -> None:
        _owned.set(len(self._mine))
        log.info("shares of rulers changed", partitions=sorted(self._mine))
