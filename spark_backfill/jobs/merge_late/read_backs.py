"""Read-backs: notes in `meta` of the time when the folds of a run were first complete in history.

The broker time of a note is that time, so deleting rows does not depend on a clock of ours. Format:
docs/formats/merge-late.md.
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
KEPT_MS = 30 * 24 * 3600 * 1000  # A lost note costs one more run, in which the folds are read back again.

Fold = tuple[int, int]  # The key of all folds of one run in one partition: (partition, order).


@dataclass(frozen=True, slots=True)
class ReadBacks:
    """at_ms: broker time of each note that belongs to this log topic."""

    topic_id: str
    at_ms: Mapping[Fold, int]

    @classmethod
    def read(cls, log: Log) -> ReadBacks:
        """All notes with the topic id of this log; notes of another topic id are skipped. Raises as the log does."""
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
                # When two runs noted the same fold, the first note counts.
                found.setdefault(fold, record.broker_ms)
        return cls(topic_id, found)

    def before(self, broker_ms: int) -> frozenset[Fold]:
        """Folds that were complete in history at or before that broker time."""
        return frozenset(fold for fold, at_ms in self.at_ms.items() if at_ms <= broker_ms)

    def note(self, log: Log, folds: Iterable[Fold]) -> int:
        """Write a note for each fold without one; durable when it returns. Returns the number of new notes."""
        fresh = sorted(set(folds) - self.at_ms.keys())
        value = json.dumps({"version": VERSION}).encode()
        for fold in fresh:
            log.append_sync(META, 0, value, key=self._key(fold))
        return len(fresh)

    def forget(self, log: Log, before_ms: int) -> None:
        """Delete notes at or before that broker time."""
        for fold in sorted(self.before(before_ms)):
            log.append_sync(META, 0, None, key=self._key(fold))

    def _key(self, fold: Fold) -> bytes:
        partition, order = fold
        return PREFIX + f"{self.topic_id}/{partition}/{order}".encode()


def broker_now_ms(log: Log) -> int:
    """The broker's clock: broker time of a record appended to `meta`, which also marks the begin of a run."""
    value = json.dumps({"version": VERSION}).encode()
    return log.append_sync(META, 0, value, key=_RUN_KEY).broker_ms
