"""Journal: keeps the state of the scheduled jobs in the topic `meta`. Format: docs/formats/spark-jobs.md.

The application writes its own record and those of runs; users write pauses and requests, from any process. So each key
has one writer. One thread uses a journal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from spark_backfill.application.job_records import (
    ApplicationRecord,
    decode_application,
    decode_pause,
    decode_request,
    decode_runs,
    encode_application,
    encode_pause,
    encode_request,
    encode_runs,
)
from spark_backfill.application.runs import KINDS, JobRuns, JobState
from spark_backfill.writing.import_run import is_import
from tsdb.log.interface import META, METRICS, Log, LogRecord
from tsdb.log.records import read_batches
from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch, TsdbError, UnknownVersion

PREFIX = "spark-jobs"
APPLICATION = "application"
RUNS, PAUSE, REQUEST = "runs", "pause", "request"
BEAT_MS = 60_000  # Interval between two records of the application.
SILENT_MS_MAX = 3 * BEAT_MS  # An application without a record for this time counts as killed.

_KEY = re.compile(rb"spark-jobs/(?P<topic_id>.+)/(?P<name>application|runs|pause|request)(?:/(?P<kind>[a-z-]+))?")


@dataclass(frozen=True, slots=True)
class NewestRecord:
    """The newest record of an application. seen_ms: its broker time."""

    record: ApplicationRecord
    seen_ms: int

    def is_live(self, now_ms: int) -> bool:
        """Whether the application runs, as far as its records show."""
        return not self.record.ended and now_ms - self.seen_ms < SILENT_MS_MAX


@dataclass(slots=True)
class JobsView:
    """Content of the records. states: the state of each kind. imported_ms: broker time of the begin of the newest
    import; None without an import.
    """

    application: NewestRecord | None = None
    states: dict[str, JobState] = field(default_factory=lambda: {kind: JobState() for kind in KINDS})
    imported_ms: int | None = None


class Journal:
    """`refresh` reads new records. Writes are durable on return. `view`: the state after the last call."""

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._prefix = f"{PREFIX}/{log.topic_id(METRICS)}/"
        self._topic_id = log.topic_id(METRICS).encode()
        self._next_offset: int | None = None
        self.view = JobsView()

    def refresh(self) -> None:
        """Apply the records since the last call. The first call applies all of `meta`.

        Raises ConfigMismatch (meta) and UnknownVersion for the last record of a key, once: the next call goes on after
        it. Raises Unavailable.
        """
        high = self._log.watermarks(META, [0])[0].high
        if self._next_offset is not None and high <= self._next_offset:
            return
        last: dict[bytes, LogRecord] = {}
        next_offset = self._next_offset
        for batch in read_batches(self._log, META, 0, next_offset):
            for record in map(batch.record, range(len(batch.offsets))):
                next_offset = record.offset + 1
                if record.key is not None:
                    last[record.key] = record
        self._next_offset = high if next_offset is None else max(high, next_offset)
        self._apply_all(last)

    def write_application(self, record: ApplicationRecord) -> None:
        """Write the application's record. Raises as the log does."""
        self._append(f"{self._prefix}{APPLICATION}", encode_application(record))

    def write_runs(self, kind: str, runs: JobRuns) -> None:
        """Write a kind's runs. Raises as the log does."""
        self._append(self._key(RUNS, kind), encode_runs(runs))

    def pause(self, kind: str, paused: bool) -> None:
        """Pause or resume a kind. Raises as the log does."""
        self._append(self._key(PAUSE, kind), encode_pause(paused))

    def request(self, kind: str) -> None:
        """Request a run of a kind. Raises the errors of the log."""
        self._append(self._key(REQUEST, kind), encode_request())

    def _key(self, name: str, kind: str) -> str:
        return f"{self._prefix}{name}/{kind}"

    def _append(self, key: str, value: bytes) -> None:
        # The timestamp is used only in topics with CreateTime.
        self._log.append_sync(META, 0, value, key=key.encode(), timestamp_ms=self._clock.now_ms())

    def _apply_all(self, last: Mapping[bytes, LogRecord]) -> None:
        failure: TsdbError | None = None
        for key, record in last.items():
            if is_import(key, record.value):
                self.view.imported_ms = max(self.view.imported_ms or 0, record.broker_ms)
            match = _KEY.fullmatch(key)
            if match is None or match["topic_id"] != self._topic_id:
                continue
            try:
                self._apply(match["name"].decode(), (match["kind"] or b"").decode(), record)
            except (ConfigMismatch, UnknownVersion) as error:
                place = f"topic meta, key {key.decode()}, offset {record.offset}"
                failure = type(error)(f"{place}: {error.message}", reason=error.reason)
        if failure is not None:
            raise failure

    def _apply(self, name: str, kind: str, record: LogRecord) -> None:
        if name == APPLICATION:
            value = record.value
            self.view.application = None if value is None else NewestRecord(decode_application(value), record.broker_ms)
        elif kind in KINDS:
            self.view.states[kind] = _CHANGES[name](self.view.states[kind], record)


def _with_runs(state: JobState, record: LogRecord) -> JobState:
    return replace(state, runs=None if record.value is None else decode_runs(record.value))


def _with_pause(state: JobState, record: LogRecord) -> JobState:
    paused = record.value is not None and decode_pause(record.value)
    return replace(state, paused=paused, switched_ms=record.broker_ms)


def _with_request(state: JobState, record: LogRecord) -> JobState:
    if record.value is None:
        return state
    decode_request(record.value)
    return replace(state, requested=record.offset + 1)


_CHANGES: Mapping[str, Callable[[JobState, LogRecord], JobState]] = {
    RUNS: _with_runs,
    PAUSE: _with_pause,
    REQUEST: _with_request,
}
