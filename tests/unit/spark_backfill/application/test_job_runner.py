"""Threads of jobs: an error stays in its run, a kind has one run at a time, and a stop ends what runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_backfill.application.journal import Journal
from spark_backfill.application.runner import STOPPED, Job, JobRunner
from spark_backfill.application.runs import Cause, JobRun, JobRuns, RunOutcome, RunResult
from spark_backfill.application.schedule import Schedule
from spark_backfill.application.scheduler import Scheduler
from spark_backfill.result import JobResult
from support.counters import sample
from support.servers.chunkers import FastClock
from support.servers.logs import LogFactory, wait_until
from tsdb.log.interface import Log
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable

CLOCK = FastClock(1_767_225_600_000, 20.0)  # A second of it passes in 50 ms.
EVERY_SECOND = Schedule("* * * * * *")


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as factory:
        factory.create(partitions=1)
        yield factory.open()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted(JobResult):
    """A result with several figures, of which only the integer is recorded."""

    job: str = "verify"
    items: int
    text: str = "x"
    flag: bool = True


def ok(_: Clock) -> JobResult:
    return Counted(items=3)


def failing(_: Clock) -> JobResult:
    raise Unavailable("the loader is away", reason="loader_behind")


def broken(_: Clock) -> JobResult:
    raise KeyError("figure")


def finding(_: Clock) -> JobResult:
    return Counted(ok=False, items=2)


@contextmanager
def running(log: Log, jobs: Mapping[str, Job], schedule: Schedule | None = EVERY_SECOND) -> Iterator[JobRunner]:
    runner = JobRunner(Scheduler(Journal(log, CLOCK), dict.fromkeys(jobs, schedule), CLOCK), jobs, CLOCK, turn_s=0.02)
    runner.start()
    yield runner
    runner.close()
    assert runner.join(60.0)
    runner.check()


def read(log: Log, kind: str) -> JobRuns:
    journal = Journal(log, CLOCK)
    journal.refresh()
    return journal.view.states[kind].runs or JobRuns(0)


def ended(log: Log, kind: str) -> list[JobRun]:
    return [run for run in read(log, kind).runs if run.end_ms is not None]


@pytest.mark.parametrize(
    ("work", "outcome"),
    [
        (ok, RunOutcome(RunResult.OK, figures={"items": 3})),
        (failing, RunOutcome(RunResult.FAILED, "loader_behind", "the loader is away")),
        (broken, RunOutcome(RunResult.FAILED, "internal", "KeyError: 'figure'")),
        (finding, RunOutcome(RunResult.FINDINGS, figures={"items": 2})),
    ],
)
def test_an_end_is_recorded_with_its_cause_and_the_other_jobs_run(
    log: Log, work: Callable[[Clock], JobResult], outcome: RunOutcome
) -> None:
    before = sample("tsdb_spark_job_runs_total", kind="verify", result=outcome.result.value)
    with running(log, {"verify": Job(work), "downsample": Job(ok)}):
        wait_until(lambda: bool(ended(log, "verify")) and len(ended(log, "downsample")) > 1)
    assert ended(log, "verify")[0].outcome == outcome
    assert sample("tsdb_spark_job_runs_total", kind="verify", result=outcome.result.value) > before
    assert (read(log, "verify").failures > 0) == (outcome.result is RunResult.FAILED)


def test_a_kind_runs_alone_while_its_due_times_pass(log: Log) -> None:
    active, most, go_on = [0], [0], threading.Event()

    def slow(_: Clock) -> JobResult:
        active[0] += 1
        most[0] = max(most[0], active[0])
        go_on.wait(60.0)
        active[0] -= 1
        return JobResult(job="verify")

    with running(log, {"verify": Job(slow), "downsample": Job(ok)}):
        wait_until(lambda: len(ended(log, "downsample")) > 2)  # Each second one: the other kind was due as often.
        assert len(read(log, "verify").runs) == 1
        go_on.set()
        wait_until(lambda: len(ended(log, "verify")) > 1)
    assert most[0] == 1


def test_a_stop_ends_waits_and_cancels_work_and_the_next_application_runs_it_at_once(log: Log) -> None:
    cancelled = threading.Event()

    def waiting(clock: Clock) -> JobResult:
        clock.sleep(3600)
        raise AssertionError("the sleep ends with the application")

    def working(_: Clock) -> JobResult:
        assert cancelled.wait(60.0)
        raise RuntimeError("cancelled")

    jobs = {"merge-late": Job(waiting), "verify": Job(working, cancelled.set)}
    with running(log, jobs):
        wait_until(lambda: all(read(log, kind).is_running for kind in jobs))
    assert [ended(log, kind)[-1].outcome for kind in jobs] == [STOPPED, STOPPED]
    yearly = Schedule("0 0 1 1 *")
    with running(log, dict.fromkeys(jobs, Job(ok)), yearly):
        wait_until(lambda: all(ended(log, kind)[-1].outcome != STOPPED for kind in jobs))
    assert [ended(log, kind)[-1].cause for kind in jobs] == [Cause.RETRY, Cause.RETRY]


class CutLog:
    """A log whose appends can be cut off."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.is_cut = False
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def append_sync(self, *given: Any, **named: Any) -> Any:
        if self.is_cut:
            self.refused += 1
            raise Unavailable("no broker answers", reason="log_unavailable")
        return self._log.append_sync(*given, **named)


def test_an_end_during_an_outage_of_the_log_is_recorded_after_it(log: Log) -> None:
    cut, go_on = CutLog(log), threading.Event()

    def waiting(_: Clock) -> Counted:
        assert go_on.wait(60.0)
        return Counted(items=5)

    before = sample("tsdb_spark_jobs_meta_failures_total")
    with running(cut, {"verify": Job(waiting)}):
        wait_until(lambda: read(log, "verify").is_running)
        cut.is_cut = True
        go_on.set()
        wait_until(lambda: cut.refused > 2)
        assert ended(log, "verify") == []
        cut.is_cut = False
        wait_until(lambda: bool(ended(log, "verify")))
    assert ended(log, "verify")[0].outcome == RunOutcome(RunResult.OK, figures={"items": 5})
    assert sample("tsdb_spark_jobs_meta_failures_total") > before + 2


def test_a_request_runs_a_paused_job_without_a_schedule_once(log: Log) -> None:
    user = Journal(log, CLOCK)
    user.pause("verify", True)
    user.request("verify")
    with running(log, {"verify": Job(ok)}, None) as runner:
        wait_until(lambda: len(ended(log, "verify")) == 1)
        user.request("verify")
        wait_until(lambda: len(ended(log, "verify")) == 2)
        assert runner.is_started
    assert [run.cause for run in ended(log, "verify")] == [Cause.REQUEST, Cause.REQUEST]
