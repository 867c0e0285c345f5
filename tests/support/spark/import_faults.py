"""Places whose tasks die: the first attempt of some is killed in the middle of its appends."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

from pyspark import TaskContext

from spark_backfill.data_source import TsdbDataSource
from spark_backfill.places import Places, places_of
from spark_backfill.writing.frame_writer import FrameWriter, begin_frame_write
from support.fakes.stand_in import StandIn
from tsdb.log.interface import CHUNKS, Log

GRAVES = "graves"  # Option of DyingSource.


@dataclass(frozen=True, slots=True)
class DyingPlaces(Places):
    """Every other task's worker is killed, the first time, when `appends` of its records are in `chunks`. graves: a
    folder in which each leaves a file."""

    graves: str = ""
    appends: int = 3

    @classmethod
    def of(cls, places: Places, graves: Path, appends: int = 3) -> Self:
        """The same places, with workers that are killed."""
        graves.mkdir(exist_ok=True)
        same = {field.name: getattr(places, field.name) for field in fields(Places)}
        return cls(**same, graves=str(graves), appends=appends)

    def open_log(self) -> Log:
        """A log as of Places that kills its worker."""
        dying: Any = _DyingLog(Places.open_log(self), self)
        return dying  # type: ignore[no-any-return]


class DyingSource(TsdbDataSource):
    """Writes as `tsdb`, from workers that die."""

    @classmethod
    def name(cls) -> str:
        return "tsdb_dying"

    def writer(self, schema: object, overwrite: bool) -> FrameWriter:
        places = DyingPlaces.of(places_of(self.options), Path(self.options[GRAVES]))
        return begin_frame_write(places, self.options["job_id"])


class _DyingLog(StandIn):
    def __init__(self, log: Log, places: DyingPlaces) -> None:
        super().__init__(log)
        self._places = places
        self._task: tuple[int, int] | None = None
        self._left = 0

    def append(self, topic: str, *given: Any, **named: Any) -> None:
        self._real.append(topic, *given, **named)
        context = TaskContext.get()
        if topic != CHUNKS or context is None or context.attemptNumber() or context.partitionId() % 2:
            return
        task = context.stageId(), context.partitionId()
        if task != self._task:
            self._task, self._left = task, self._places.appends
        self._left -= 1
        if not self._left:
            # Acknowledged records stay; the others may be in the log or not.
            self._real.flush(30.0)
            (Path(self._places.graves) / "-".join(map(str, task))).touch()
            os.kill(os.getpid(), signal.SIGKILL)
