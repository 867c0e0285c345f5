"""Scheduled merge-late and downsample look at recent windows once all of history was done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_backfill.application.journal import Journal
from spark_backfill.application.recent import IMPORT_MS, LAG_MS, downsample_from_ms, merge_late_from_ms
from spark_backfill.application.runs import Cause, JobRun, RunOutcome, RunResult
from spark_backfill.writing.import_run import DOWNSAMPLE, begin_run
from support.servers.logs import LogFactory
from tsdb.log.interface import Log
from tsdb.model.clock import ManualClock
from tsdb.model.time_set import PRODUCTION

HOUR_MS = 3600 * 1000
DAY_MS = 24 * HOUR_MS
WINDOW_MS = PRODUCTION.window_ms
BEGIN_MS = 20_000 * DAY_MS
OLDER_THAN_MS = 7 * DAY_MS
RECENT_MS = BEGIN_MS - LAG_MS - OLDER_THAN_MS - WINDOW_MS  # The begin is the start of a window.


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGIN_MS - IMPORT_MS - DAY_MS)


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Iterator[Log]:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as logs:
        logs.create(1)
        yield logs.open(clock=clock)


def run(**figures: int) -> JobRun:
    """A run with result ok."""
    return JobRun(BEGIN_MS, Cause.SCHEDULE, BEGIN_MS + 1, RunOutcome(RunResult.OK, figures=figures))


def imported_ms(log: Log) -> int | None:
    """The begin of the newest import, as an application sees it."""
    journal = Journal(log, ManualClock(BEGIN_MS))
    journal.refresh()
    return journal.view.imported_ms


def fold_from_ms(log: Log, last_ok: JobRun | None, older_than_ms: int = OLDER_THAN_MS) -> int | None:
    return merge_late_from_ms(last_ok, imported_ms(log), PRODUCTION, older_than_ms)


def derive_from_ms(log: Log, last_ok: JobRun | None) -> int | None:
    return downsample_from_ms(last_ok, imported_ms(log), PRODUCTION)


def test_the_first_run_looks_at_all_of_history(log: Log) -> None:
    assert fold_from_ms(log, None) is None
    assert derive_from_ms(log, None) is None
    assert fold_from_ms(log, run()) is None, "a record without the figure does not say what is open"
    assert derive_from_ms(log, run()) is None


def test_a_later_run_looks_at_windows_that_accepted_samples_when_the_last_one_began(log: Log) -> None:
    assert fold_from_ms(log, run(windows_open=0)) == RECENT_MS
    assert fold_from_ms(log, run(windows_open=0), 0) == BEGIN_MS - LAG_MS - PRODUCTION.accept_past_ms - WINDOW_MS
    found = derive_from_ms(log, run(end_ms=BEGIN_MS - DAY_MS))
    assert found == BEGIN_MS - LAG_MS - PRODUCTION.accept_past_ms - WINDOW_MS


def test_a_later_run_goes_back_to_what_the_last_one_left(log: Log) -> None:
    open_ms = BEGIN_MS - 300 * DAY_MS
    assert fold_from_ms(log, run(windows_open=2, open_from_ms=open_ms)) == open_ms
    assert fold_from_ms(log, run(windows_open=2, open_from_ms=BEGIN_MS)) == RECENT_MS
    assert derive_from_ms(log, run(end_ms=open_ms + 1)) == open_ms


def test_after_the_begin_of_an_import_runs_look_at_all_of_history_for_a_week(log: Log, clock: ManualClock) -> None:
    begin_run(log, "early", range(1), "files", clock)
    clock.advance(DAY_MS)
    begin_run(log, "downsample-0", range(1), DOWNSAMPLE, clock)
    assert fold_from_ms(log, run(windows_open=0)) == RECENT_MS, "the import is too early, and downsample is none"
    begin_run(log, "import", range(1), "files", clock)
    assert imported_ms(log) == BEGIN_MS - IMPORT_MS
    assert fold_from_ms(log, run(windows_open=0)) is None
    assert derive_from_ms(log, run(end_ms=BEGIN_MS)) is None
