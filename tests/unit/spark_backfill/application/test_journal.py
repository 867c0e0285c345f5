"""The jobs' records in `meta`: read back as written, by any process, and refused when they are of no known form."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_backfill.application.job_records import ApplicationRecord, Planned
from spark_backfill.application.journal import SILENT_MS_MAX, Journal
from spark_backfill.application.runs import (
    FIGURES_MAX,
    RUNS_MAX,
    TEXT_MAX,
    Cause,
    JobRun,
    JobRuns,
    JobState,
    RunOutcome,
    RunResult,
)
from support.servers.logs import LogFactory
from tsdb.log.interface import META, METRICS, Log
from tsdb.model.clock import ManualClock
from tsdb.model.errors import ConfigMismatch, TsdbError, UnknownVersion
from tsdb.v1 import records_pb2

NOW_MS = 1_767_225_600_000
CLOCK = ManualClock(NOW_MS)


@pytest.fixture(params=["as SQLite has them", "/as+Kafka/may/have/them/"])
def log(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """A log with topic ids of both kinds. Kafka's are base64, which has slashes."""
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as factory:
        factory.create(partitions=1)
        log = factory.open(clock=CLOCK)
        if "/" in request.param:
            monkeypatch.setattr(log, "topic_id", lambda topic: request.param)
        yield log


def read(log: Log) -> Journal:
    journal = Journal(log, CLOCK)
    journal.refresh()
    return journal


def put(log: Log, name: str, value: bytes | None) -> None:
    log.append_sync(META, 0, value, key=f"spark-jobs/{log.topic_id(METRICS)}/{name}".encode())


def test_a_new_log_has_no_records(log: Log) -> None:
    view = read(log).view
    assert view.application is None
    assert set(view.states.values()) == {JobState()}


def test_records_are_read_back_as_written(log: Log) -> None:
    writer, reader = Journal(log, CLOCK), read(log)
    failed = RunOutcome(RunResult.FAILED, "loader_behind", "within 0.5 s", {})
    runs = (
        JobRuns(NOW_MS)
        .begun(NOW_MS, Cause.REQUEST, 7)
        .ended(NOW_MS + 5, RunOutcome(RunResult.OK, figures={"folded": 3}))
    )
    runs = runs.begun(NOW_MS + 10, Cause.SCHEDULE, 0).ended(NOW_MS + 20, failed).begun(NOW_MS + 30, Cause.RETRY, 0)
    record = ApplicationRecord(NOW_MS, plans={"verify": Planned("0 3 * * *", NOW_MS + 1), "downsample": Planned()})
    writer.write_runs("merge-late", runs)
    writer.write_application(record)
    writer.pause("verify", True)
    writer.request("verify")
    reader.refresh()
    assert reader.view.states["merge-late"] == JobState(runs)
    assert (runs.failures, runs.requests_done, runs.last_ok and runs.last_ok.outcome) == (
        1,
        7,
        RunOutcome(RunResult.OK, figures={"folded": 3}),
    )
    assert reader.view.states["verify"] == JobState(None, True, NOW_MS, log.watermarks(META, [0])[0].high)
    assert reader.view.states["downsample"] == JobState()
    assert reader.view.application is not None
    assert reader.view.application.record == record
    writer.pause("verify", False)
    reader.refresh()
    assert not reader.view.states["verify"].paused
    assert read(log).view == reader.view


def test_an_application_is_live_until_it_ends_or_is_silent(log: Log) -> None:
    journal = Journal(log, CLOCK)
    journal.write_application(ApplicationRecord(NOW_MS))
    seen = read(log).view.application
    assert seen is not None
    assert seen.is_live(NOW_MS + SILENT_MS_MAX - 1)
    assert not seen.is_live(NOW_MS + SILENT_MS_MAX)
    journal.write_application(ApplicationRecord(NOW_MS, ended=True))
    seen = read(log).view.application
    assert seen is not None
    assert not seen.is_live(NOW_MS)


def test_records_of_other_logs_keys_and_kinds_are_skipped(log: Log) -> None:
    for key in (b"settings", b"spark-jobs/other-topic/pause/verify", b"spark-jobs/x", b"\xff/runs/verify"):
        log.append_sync(META, 0, b"\xff", key=key)
    put(log, "runs/compaction", b"\xff")
    put(log, "runs/verify", None)
    assert read(log).view.states["verify"] == JobState()


UNREADABLE: list[tuple[str, bytes, type[TsdbError], str]] = [
    ("runs/verify", b"\xff\xff", ConfigMismatch, "does not parse"),
    ("pause/verify", b"", ConfigMismatch, "has no version"),
    ("request/verify", b"\x08\x09", UnknownVersion, "is of version 9"),
    ("application", records_pb2.SparkApplication(version=2).SerializeToString(), UnknownVersion, "is of version 2"),
    (
        "runs/verify",
        records_pb2.SparkJobRuns(
            version=1, runs=[records_pb2.SparkJobRun(begin_ms=1, cause="whim")]
        ).SerializeToString(),
        ConfigMismatch,
        "'whim' is not a valid Cause",
    ),
]


@pytest.mark.parametrize(("name", "value", "error", "said"), UNREADABLE)
def test_a_record_of_no_known_form_is_named_once_and_passed(
    log: Log, name: str, value: bytes, error: type[TsdbError], said: str
) -> None:
    journal = Journal(log, CLOCK)
    put(log, name, value)
    journal.pause("downsample", True)
    with pytest.raises(error, match=said) as refused:
        journal.refresh()
    assert f"/{name}, offset 0" in refused.value.message
    assert journal.view.states["downsample"].paused, "other records count"
    journal.refresh()


def test_a_good_record_replaces_an_unreadable_one(log: Log) -> None:
    put(log, "pause/verify", b"\xff")
    Journal(log, CLOCK).pause("verify", True)
    assert read(log).view.states["verify"].paused


def test_records_stay_small(log: Log) -> None:
    runs = JobRuns(0)
    outcome = RunOutcome(RunResult.FAILED, "x", "e" * 10_000, {f"figure_{n}": n for n in range(1000)})
    for at_ms in range(3 * RUNS_MAX):
        runs = runs.begun(at_ms, Cause.SCHEDULE, 0).ended(at_ms, outcome)
    assert len(runs.runs) == RUNS_MAX
    assert runs.failures == 3 * RUNS_MAX
    kept = runs.runs[-1].outcome
    assert kept is not None
    assert (len(kept.text), len(kept.figures)) == (TEXT_MAX, FIGURES_MAX)
    Journal(log, CLOCK).write_runs("verify", runs)
    assert read(log).view.states["verify"].runs == runs


def test_a_clock_that_steps_back_never_makes_a_run_of_negative_length() -> None:
    ended = JobRuns(0).begun(1_000, Cause.SCHEDULE, 0).ended(400, RunOutcome(RunResult.OK))
    assert ended.last == JobRun(1_000, Cause.SCHEDULE, 1_000, RunOutcome(RunResult.OK))
