"""Scheduled jobs in a separate application: of several such applications one runs the jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from spark_backfill.application.job_records import ApplicationRecord
from spark_backfill.application.jobs import JobOptions
from spark_backfill.application.jobs_alone import JobsAlone
from spark_backfill.application.journal import BEAT_MS, SILENT_MS_MAX, Journal
from spark_backfill.places import Places
from support.servers.chunkers import FastClock
from support.servers.logs import LogFactory, wait_until
from support.spark.local_rows import LOCAL
from support.spark.pipelines import build_options
from tsdb.log.interface import Log
from tsdb.model.errors import Unavailable
from tsdb.model.meta import MetaSettings

BEGIN_MS = 1_767_225_600_000


@pytest.fixture
def clock() -> FastClock:
    """Time stands still until a test moves it."""
    return FastClock(BEGIN_MS, 0.0)


@pytest.fixture
def log(tmp_path: Path, clock: FastClock) -> Iterator[Log]:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as factory:
        factory.create(partitions=1)
        yield factory.open(clock=clock)


class Run:
    """An application without kinds of jobs, on a thread of this process."""

    def __init__(self, log: Log, clock: FastClock, on_turn: Callable[[], None]) -> None:
        options = JobOptions(build_options(log, Places()), MetaSettings(partitions=1))
        self.stopping = threading.Event()
        self.application = JobsAlone(LOCAL, log, options, {}, clock, on_turn, self.stopping)
        self.error: Unavailable | None = None
        self._thread = threading.Thread(target=self._run, name="jobs-alone")

    def _run(self) -> None:
        try:
            self.application.run()
        except Unavailable as error:
            self.error = error

    @property
    def works(self) -> bool:
        return self.application.runner.is_started

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.stopping.set()
        self._thread.join(60.0)


@contextmanager
def running(log: Log, clock: FastClock, on_turn: Callable[[], None] = lambda: None) -> Iterator[Run]:
    run = Run(log, clock, on_turn)
    run.start()
    try:
        yield run
    finally:
        run.close()


def is_live(log: Log, clock: FastClock) -> bool:
    journal = Journal(log, clock)
    journal.refresh()
    newest = journal.view.application
    return newest is not None and newest.is_live(clock.now_ms())


def test_a_second_one_is_refused_while_the_first_one_beats(log: Log, clock: FastClock) -> None:
    with running(log, clock) as first:
        wait_until(lambda: is_live(log, clock))
        turns = threading.Semaphore(0)
        with running(log, clock, turns.release) as second:
            assert turns.acquire(timeout=60.0), "it has seen the record and waits"
            clock.base_ms += BEAT_MS + 1
            wait_until(lambda: second.ended)
            assert not second.works
            assert second.error is not None
            assert (second.error.reason, "stop it first" in second.error.message) == ("jobs_in_use", True)
        assert first.works
        assert first.error is None
    assert not is_live(log, clock), "an end in order is recorded"


def test_one_that_ended_leaves_nothing_to_wait_for(log: Log, clock: FastClock) -> None:
    for _ in range(2):
        with running(log, clock) as run:
            wait_until(lambda: is_live(log, clock))
            assert run.works


def test_after_a_kill_the_next_one_begins_when_the_record_is_old(log: Log, clock: FastClock) -> None:
    Journal(log, clock).write_application(ApplicationRecord(BEGIN_MS - BEAT_MS))
    turns = threading.Semaphore(0)
    with running(log, clock, turns.release) as run:
        assert turns.acquire(timeout=60.0)
        assert not run.works, "the other one may be alive"
        clock.base_ms += SILENT_MS_MAX
        wait_until(lambda: run.works)
    assert run.error is None


def test_of_two_that_began_at_once_the_later_one_goes_on(log: Log, clock: FastClock) -> None:
    with running(log, clock) as first:
        wait_until(lambda: is_live(log, clock))
        later = ApplicationRecord(BEGIN_MS + 7)
        Journal(log, clock).write_application(later)
        wait_until(lambda: first.ended)
        assert first.error is not None
        assert (first.error.reason, "gives way" in first.error.message) == ("jobs_in_use", True)
    journal = Journal(log, clock)
    journal.refresh()
    assert journal.view.application is not None
    assert journal.view.application.record == later, "the record of the other one stands"
