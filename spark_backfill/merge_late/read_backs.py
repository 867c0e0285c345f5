"""Read-backs: when the folds of a run were first seen whole in history, as notes in `meta`.

A note's broker time is that moment, so no clock of ours decides when rows may go. Format: docs/formats/merge-late.md.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tsdb.log.interface import META, METRICS, Log
from tsdb.log.records import read_to_end

PREFIX = b"merge-late/"
_KEY = re.compile(r"merge-late/(?P<topic_id>.+)/(?P<partition>\d{1,10})/(?P<order>\d{1,19})")
_RUN_KEY = PREFIX + b"run"
VERSION = 1
KEPT_MS = 30 * 24 * 3600 * 1000  # A note that was lost costs one more run: folds are then read back anew.

Fold = tuple[int, int]  # (partition, order): of all folds that one run made in a partition.


@dataclass(frozen=True, slots=True)
class ReadBacks:
    """at_ms: broker time of each note of this log."""

    topic_id: str
    at_ms: Mapping[Fold, int]

    @classmethod
    def read(cls, log: Log) -> ReadBacks:
        """All notes of this incarnation of the log; those of another one are passed over. Raises as the log does."""
        topic_id = log.topic_id(METRICS)
        found: dict[Fold, int] = {}
        for record in read_to_end(log, META, 0):
            match = _KEY.fullmatch((record.key or b"").decode(errors="replace"))
            if match is None or match["topic_id"] != topic_id:
                continue
            fold = int(match["partition"]), int(match["order"])
            if record.value is None:
                found.pop(fold, None)
            else:
                # Of two runs that saw it the first counts.
                found.setdefault(fold, record.broker_ms)
        return cls(topic_id, found)

    def before(self, broker_ms: int) -> frozenset[Fold]:
        """Folds seen whole at or before that broker time."""
        return frozenset(fold for fold, at_ms in self.at_ms.items() if at_ms <= broker_ms)

    def note(self, log: Log, folds: Iterable[Fold]) -> int:
        """Note those that have no note yet; durable when it returns. Returns how many."""
        fresh = sorted(set(folds) - self.at_ms.keys())
        value = json.dumps({"version": VERSION}).encode()
        for fold in fresh:
            log.append_sync(META, 0, value, key=self._key(fold))
        return len(fresh)

    def forget(self, log: Log, before_ms: int) -> None:
        """Drop notes from before that broker time."""
        for fold in sorted(self.before(before_ms)):
            log.append_sync(META, 0, None, key=self._key(fold))

    def _key(self, fold: Fold) -> bytes:
        partition, order = fold
        return PREFIX + f"{self.topic_id}/{partition}/{order}".encode()


def broker_now_ms(log: Log) -> int:
    """The broker's clock, as the log tells it of a record that says when a run began."""
    value = json.dumps({"version": VERSION}).encode()
    return log.append_sync(META, 0, value, key=_RUN_KEY).broker_ms
