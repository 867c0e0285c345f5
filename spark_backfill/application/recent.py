"""Recent windows: from which window on a scheduled merge-late or downsample looks for work.

A run continues the last one with result ok, so it needs only windows that got rows since: those that still accepted
samples when that run began, those that it left open, and those that an import wrote. Imports may write any window, so
after the begin of one, runs look at all of history for IMPORT_MS.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_backfill.application.runs import JobRun
from spark_backfill.writing.import_run import DAY_MS
from tsdb.model.time_set import TimeSet
from tsdb.model.window import floor_to

IMPORT_MS = 7 * DAY_MS  # Longest time from the begin of an import to its last row in history.
LAG_MS = 7 * DAY_MS  # Longest time from the acceptance of a sample to its row in history.


def merge_late_from_ms(
    last_ok: JobRun | None, imported_ms: int | None, times: TimeSet, older_than_ms: int
) -> int | None:
    """Start of the first window that may have work for merge-late; None: all of history. imported_ms: broker time of
    the newest import; None without an import.
    """
    if last_ok is None or (figures := _figures(last_ok, imported_ms, "windows_open")) is None:
        return None
    # A window is folded once more when it reaches older_than_ms.
    start_ms = _start_ms(last_ok, times, max(older_than_ms, times.accept_past_ms))
    return min(start_ms, figures.get("open_from_ms", start_ms))


def downsample_from_ms(last_ok: JobRun | None, imported_ms: int | None, times: TimeSet) -> int | None:
    """Start of the first window that may be stale; None: all of history. imported_ms: as for merge-late."""
    if last_ok is None or (figures := _figures(last_ok, imported_ms, "end_ms")) is None:
        return None
    return min(_start_ms(last_ok, times, times.accept_past_ms), floor_to(figures["end_ms"], times.window_ms))


def _figures(last_ok: JobRun, imported_ms: int | None, needed: str) -> Mapping[str, int] | None:
    """The figures of a run that the next one may continue; None when it has no such figure or an import may still
    write."""
    figures = last_ok.outcome.figures if last_ok.outcome else {}
    is_recent = imported_ms is not None and imported_ms >= last_ok.begin_ms - IMPORT_MS
    return None if is_recent or needed not in figures else figures


def _start_ms(last_ok: JobRun, times: TimeSet, age_ms: int) -> int:
    return floor_to(last_ok.begin_ms - LAG_MS - age_ms, times.window_ms) - times.window_ms
