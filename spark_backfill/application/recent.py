"""Recent windows: from which window on a scheduled merge-late or downsample looks for work.

A run continues the last one with result ok, so it needs only windows that got rows since: those that still accepted
samples when that run began, those that it left open, and those that an import wrote. Imports may write any window, so
after the begin of one, runs look at all of history for IMPORT_MS.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from spark_backfill.application.runs import JobRun
from spark_backfill.jobs.downsample.job import FINGERPRINT
from spark_backfill.writing.import_run import DAY_MS, KEY_PREFIX
from tsdb.log.interface import META, Log
from tsdb.log.records import read_to_end
from tsdb.model.time_set import TimeSet
from tsdb.model.window import floor_to

IMPORT_MS = 7 * DAY_MS  # Longest time from the begin of an import to its last row in history.
LAG_MS = 7 * DAY_MS  # Longest time from the acceptance of a sample to its row in history.


def merge_late_from_ms(log: Log, last_ok: JobRun | None, times: TimeSet, older_than_ms: int) -> int | None:
    """Start of the first window that may have work for merge-late; None: all of history. Raises as the log does."""
    if last_ok is None or (figures := _figures(log, last_ok, "windows_open")) is None:
        return None
    # A window is folded once more when it reaches older_than_ms.
    start_ms = _start_ms(last_ok, times, max(older_than_ms, times.accept_past_ms))
    return min(start_ms, figures.get("open_from_ms", start_ms))


def downsample_from_ms(log: Log, last_ok: JobRun | None, times: TimeSet) -> int | None:
    """Start of the first window that may be stale; None: all of history. Raises as the log does."""
    if last_ok is None or (figures := _figures(log, last_ok, "end_ms")) is None:
        return None
    return min(_start_ms(last_ok, times, times.accept_past_ms), floor_to(figures["end_ms"], times.window_ms))


def imported_since(log: Log, broker_ms: int) -> bool:
    """Whether an import or a DataFrame write began at or after that broker time. Runs of downsample do not count."""
    return any(
        record.broker_ms >= broker_ms and not _is_downsample(record.value)
        for record in read_to_end(log, META, 0)
        if record.key is not None and record.key.startswith(KEY_PREFIX) and record.value is not None
    )


def _figures(log: Log, last_ok: JobRun, needed: str) -> Mapping[str, int] | None:
    """The figures of a run that the next one may continue; None when it has no such figure or an import may still
    write."""
    figures = last_ok.outcome.figures if last_ok.outcome else {}
    return figures if needed in figures and not imported_since(log, last_ok.begin_ms - IMPORT_MS) else None


def _start_ms(last_ok: JobRun, times: TimeSet, age_ms: int) -> int:
    return floor_to(last_ok.begin_ms - LAG_MS - age_ms, times.window_ms) - times.window_ms


def _is_downsample(value: bytes) -> bool:
    try:
        fields = json.loads(value)
    except ValueError:
        return False
    return isinstance(fields, dict) and fields.get("fingerprint") == FINGERPRINT
