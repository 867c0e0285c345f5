"""Writer of an embedded history: runs statements in groups, each with one answer."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tsdb.history.interface import OnDone
from tsdb.history.settings import HistorySettings
from tsdb.history.sqlite.database import ERRORS, connect
from tsdb.history.statement_metrics import (
    CHUNK,
    METRIC_NAME,
    SERIES,
    count_failure,
    statements_total,
    write_seconds,
    written_bytes_total,
)
from tsdb.history.writes import ROW_BYTES, reserve, write_budget
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.logs import get_logger
from tsdb.sqlite.database import transaction
from tsdb.sqlite.writer import GroupWriter

# Rows of series are spread over their whole table, so each costs a page or two unless many are written together. So the
# next group waits longer after a group with many of these rows.
REST_S_A_SERIES = 0.0001
REST_S_MAX = 0.5

log = get_logger(__name__)

Statement = tuple[str, tuple[object, ...]]


@dataclass(slots=True)
class StatementGroup:
    """Statements of one kind with one answer. size: bytes of the chunks in them."""

    kind: str
    statements: Sequence[Statement]
    on_done: OnDone
    size: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def weight(self) -> int:
        """Bytes counted against the bound while it waits."""
        return self.size + ROW_BYTES * len(self.statements)


class HistoryWriter(GroupWriter[StatementGroup, None]):
    """A writer whose `put` waits for capacity. `put` raises Overloaded (inflight_full) and Unavailable
    (store_closed)."""

    def __init__(self, path: Path, settings: HistorySettings) -> None:
        super().__init__("history-writer", "history", path)
        self._settings = settings
        self._inflight = write_budget(settings.inflight_bytes_max)
        self._rest_s = 0.0  # Pause before the next group, on the writer's thread.
        self._rests = True  # Until `close`.
        self._hurry = threading.Event()  # A write came that must not wait for rows of series.

    def put(self, write: StatementGroup) -> None:
        reserve(self._inflight, write.weight, self._settings.write_timeout_s)
        try:
            super().put(write)
        except BaseException:
            self._inflight.give_back(write.weight)
            raise
        if write.kind not in (SERIES, METRIC_NAME):
            self._hurry.set()

    def close(self) -> None:
        self._rests = False
        self._hurry.set()
        self._inflight.close()
        if not self._inflight.wait_idle(self._settings.write_timeout_s):
            log.warning("history closed with writes unanswered", bytes=self._inflight.bytes)
        super().close()

    def _connect(self) -> sqlite3.Connection:
        return connect(self._path)

    def _rest(self) -> None:
        if self._rests and self._rest_s:
            self._hurry.wait(self._rest_s)
        self._hurry.clear()
        self._rest_s = 0.0

    def _store(self, connection: sqlite3.Connection, group: Sequence[StatementGroup]) -> list[TsdbError | None]:
        with transaction(connection, ERRORS, "writing", write=True):
            for write in group:
                for sql, values in write.statements:
                    connection.execute(sql, values)
                statements_total.labels(write.kind).inc(len(write.statements))
        self._rest_s = min(REST_S_A_SERIES * sum(write.kind == SERIES for write in group), REST_S_MAX)
        return [None] * len(group)

    def _answer(self, write: StatementGroup, outcome: TsdbError | None) -> None:
        if outcome is not None:
            count_failure(outcome)
        elif write.kind == CHUNK:
            written_bytes_total.inc(write.size)
        write_seconds.observe(time.monotonic() - write.started)
        try:
            write.on_done(outcome)
        finally:
            self._inflight.give_back(write.weight)

    def _closed_error(self) -> TsdbError:
        return count_failure(Unavailable("the history connection is closed", reason="store_closed"))
