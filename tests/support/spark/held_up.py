"""Places whose first task stops before its first append, until a second attempt of the task appends."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from pyspark import TaskContext

from spark_backfill.places import Places
from support.fakes.stand_in import StandIn
from tsdb.log.interface import CHUNKS, Log

HELD_UP = 0  # The number of the task.
MET = "met"
WITHIN_S = 300.0


@dataclass(frozen=True, slots=True)
class HeldUpPlaces(Places):
    """seen: a folder in which every attempt leaves a file, named by task and attempt, when it first appends."""

    seen: str = ""

    @classmethod
    def of(cls, places: Places, seen: Path) -> Self:
        """The same Places, where one task waits."""
        seen.mkdir(exist_ok=True)
        same = {field.name: getattr(places, field.name) for field in fields(Places)}
        return cls(**same, seen=str(seen))

    def open_log(self) -> Log:
        """A log as of Places that waits in one task."""
        held: Any = _HeldUpLog(Places.open_log(self), Path(self.seen))
        return held  # type: ignore[no-any-return]


def attempts_of(seen: Path, task: int) -> list[int]:
    """The attempts of a task that appended."""
    return sorted(int(file.name.split("-")[1]) for file in seen.glob(f"{task}-*"))


def has_met(seen: Path) -> bool:
    """Whether the stopped attempt continued beside a second one, and had not failed before that one began."""
    return (seen / MET).exists()


class _HeldUpLog(StandIn):
    def __init__(self, log: Log, seen: Path) -> None:
        super().__init__(log)
        self._seen = seen

    def append(self, topic: str, *given: Any, **named: Any) -> None:
        context = TaskContext.get()
        if topic == CHUNKS and context is not None:
            self._be_seen(context.partitionId(), context.attemptNumber())
        self._real.append(topic, *given, **named)

    def _be_seen(self, task: int, attempt: int) -> None:
        (self._seen / f"{task}-{attempt}").touch()
        if task != HELD_UP or has_met(self._seen):
            return
        if attempt:
            # The end of one attempt lets Spark kill the other, so this one waits until the stopped attempt has seen it.
            self._wait(lambda: has_met(self._seen), "the attempt that was held up is gone")
        else:
            self._wait(lambda: len(attempts_of(self._seen, task)) > 1, "nobody else took the task up")
            (self._seen / MET).touch()

    def _wait(self, done: Callable[[], bool], otherwise: str) -> None:
        give_up_at = time.monotonic() + WITHIN_S
        while not done():
            assert time.monotonic() < give_up_at, otherwise
            time.sleep(0.05)  # Interval of checks; `done` is the claim.
