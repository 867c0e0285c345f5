"""Places whose tasks pause in the middle of their work. A test can then take a file or a server away at that point."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from spark_backfill.data_source import TsdbDataSource
from spark_backfill.places import Places
from spark_backfill.source.columns import columns_of
from spark_backfill.source.history import HistoryReader
from support.fakes.stand_in import StandIn
from support.servers.logs import WITHIN_S, wait_until
from tsdb.history.interface import ChunkStore
from tsdb.log.interface import CHUNKS, Log

FOLDER = "folder"  # Option of PausingSource.
APPENDS = 3


@dataclass(frozen=True, slots=True)
class PausingPlaces(Places):
    """Tasks stop after APPENDS of their records are in `chunks`, or after the first rows of history, until the test
    lets them go on. folder: folder in which both sides exchange files.
    """

    folder: str = ""

    @classmethod
    def of(cls, places: Places, folder: Path, **changes: Any) -> Self:
        """The given places, with some settings changed."""
        folder.mkdir(exist_ok=True)
        same = {field.name: getattr(places, field.name) for field in fields(Places)}
        return cls(**{**same, **changes}, folder=str(folder))

    def open_log(self) -> Log:
        pausing: Any = _PausingLog(Places.open_log(self), self)
        return pausing  # type: ignore[no-any-return]

    def open_history(self) -> ChunkStore:
        pausing: Any = _PausingStore(Places.open_history(self), self)
        return pausing  # type: ignore[no-any-return]

    def pause(self) -> None:
        """Wait here when called in a task. On the driver it does nothing."""
        if TaskContext.get() is None:
            return
        reached, go_on = _files(self)
        reached.touch()
        give_up_at = time.monotonic() + WITHIN_S
        while not go_on.exists() and time.monotonic() < give_up_at:
            time.sleep(0.02)  # Interval of checks.


class PausingSource(TsdbDataSource):
    """Reads history as `tsdb`, in tasks that stop after the first rows."""

    @classmethod
    def name(cls) -> str:
        return "tsdb_pausing"

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._parsed()
        places = PausingPlaces.of(options.places, Path(self.options[FOLDER]))
        return HistoryReader(dataclasses.replace(options, places=places), columns_of(schema))


class Strike:
    """When a task has stopped: call `strike`, let the tasks continue, and call `mend` at the end of the block, or after
    away_s."""

    def __init__(
        self, places: PausingPlaces, strike: Callable[[], None], mend: Callable[[], None], away_s: float | None = None
    ) -> None:
        self._files = _files(places)
        self._strike = strike
        self._mend = mend
        self._away_s = away_s
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="strike")
        self.struck = False

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        reached, go_on = self._files
        wait_until(lambda: reached.exists() or self._ended.is_set(), 4 * WITHIN_S)
        if self._ended.is_set():
            return
        self._strike()
        self.struck = True
        try:
            go_on.touch()
            self._ended.wait(self._away_s)  # Longest outage.
        finally:
            self._mend()


def _files(places: PausingPlaces) -> tuple[Path, Path]:
    """Two files as signals: a task has stopped; tasks may continue."""
    return Path(places.folder) / "reached", Path(places.folder) / "go-on"


class _PausingLog(StandIn):
    def __init__(self, log: Log, places: PausingPlaces) -> None:
        super().__init__(log)
        self._places = places
        self._appends = 0

    def append(self, topic: str, *given: Any, **named: Any) -> None:
        self._real.append(topic, *given, **named)
        self._appends += topic == CHUNKS
        if self._appends == APPENDS:
            self._real.flush(WITHIN_S)
            self._places.pause()


class _PausingStore(StandIn):
    def __init__(self, store: ChunkStore, places: PausingPlaces) -> None:
        super().__init__(store)
        self._places = places

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return self._paused(found) if name in ("scan", "read") else found

    def _paused(self, reading: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
        def pieces(*given: Any, **named: Any) -> Iterator[Any]:
            for piece in reading(*given, **named):
                yield piece
                self._places.pause()

        return pieces
