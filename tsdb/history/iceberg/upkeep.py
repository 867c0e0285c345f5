"""Upkeep: joins small files of the table, expires snapshots and drops old days on a schedule, beside the keeper.

A turn is skipped while the keeper of this process does not keep the table, so of two loaders one does it. One thread,
`tables-upkeep`; a turn that fails is tried again at the next time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tsdb.history.iceberg.catalog import TableSettings, load_table, open_catalog
from tsdb.history.iceberg.keeper import failures_total
from tsdb.history.iceberg.maintain import compact, drop_before, expire
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError
from tsdb.model.times import DAY_MS
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge
from tsdb.ops.threads import ThreadComponent

FILES_MIN = 8  # Fewer would write the newest day's samples again with each run.

log = get_logger(__name__)

turns_total = counter("tsdb_tables_upkeep_turns_total", "Turns of the table's upkeep that ended without an error.")
upkept_timestamp = gauge("tsdb_tables_upkeep_timestamp_seconds", "Time of the last whole turn of the table's upkeep.")
files_left = gauge("tsdb_tables_data_files", "Data files of the table after the last turn of its upkeep.")


@dataclass(frozen=True, slots=True)
class UpkeepOptions:
    """every_s: from the end of a turn to the next one. snapshots_s: age at which snapshots expire. retention_s: age at
    which days of samples are dropped from the table; 0: never."""

    every_s: float
    snapshots_s: float
    retention_s: float = 0.0


class TableUpkeep(ThreadComponent):
    """Component of a process with a keeper. is_kept: whether that keeper commits now."""

    def __init__(self, table: TableSettings, options: UpkeepOptions, is_kept: Callable[[], bool], clock: Clock) -> None:
        super().__init__("tables-upkeep")
        self._table = table
        self._options = options
        self._is_kept = is_kept
        self._clock = clock

    def _run(self) -> None:
        while not self._closing.wait(self._options.every_s):
            if self._is_kept():
                try:
                    self.turn()
                except TsdbError as error:
                    failures_total.labels(error.reason).inc()
                    log.warning("upkeep of the table failed", reason=error.reason, error=error.message)

    def turn(self) -> None:
        """Join, drop, expire. Ends early at `close`. Raises the errors of the table."""
        name, now = self._table.name, datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        with open_catalog(self._table) as catalog:
            for joined in compact(catalog, name, FILES_MIN):
                log.info("files joined", day=joined.day, before=joined.files_before, after=joined.files_after)
                if self._closing.is_set():
                    return
            if self._options.retention_s:
                day = int((self._clock.now_ms() - self._options.retention_s * 1000) // DAY_MS)
                dropped = drop_before(catalog, name, day)
                log.info("days dropped", before_day=day, files=len(dropped))
            expired = expire(catalog, name, now - timedelta(seconds=self._options.snapshots_s))
            log.info("snapshots expired", snapshots=len(expired.snapshots), files=len(expired.files))
            snapshot = load_table(catalog, name).current_snapshot()
        if snapshot is not None and snapshot.summary is not None:
            files_left.set(int(snapshot.summary.additional_properties.get("total-data-files", 0)))
        turns_total.inc()
        upkept_timestamp.set(self._clock.now_ms() / 1000)
