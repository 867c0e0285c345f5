"""The records of scheduled jobs are the same over any log: an application and its users follow each other."""

from __future__ import annotations

from spark_backfill.application.journal import Journal
from spark_backfill.application.runs import Cause, RunOutcome, RunResult
from spark_backfill.application.schedule import Schedule
from spark_backfill.application.scheduler import Scheduler
from support.servers.logs import LogFactory
from tsdb.log.settings import LogSettings
from tsdb.model.clock import SystemClock

CLOCK = SystemClock()
BESIDE = LogSettings(embedded_guest=True)  # As `tsdb spark jobs` opens a log that an application has open.
YEARLY = Schedule("0 0 1 1 *")


def test_an_application_follows_its_users_and_its_successor_goes_on(log_factory: LogFactory) -> None:
    log_factory.create(partitions=1)
    user = Journal(log_factory.open(BESIDE), CLOCK)
    first = Scheduler(Journal(log_factory.open(), CLOCK), {"verify": YEARLY, "downsample": YEARLY}, CLOCK)
    first.open()
    first.beat()
    assert first.due() == []
    user.pause("downsample", True)
    user.request("verify")
    assert [(kind, due.cause) for kind, due in first.due()] == [("verify", Cause.REQUEST)]
    assert first.next_due("downsample") is None
    first.begin("verify", Cause.REQUEST)
    user.refresh()
    runs = user.view.states["verify"].runs
    assert runs is not None
    assert runs.is_running
    assert user.view.application is not None
    assert user.view.application.is_live(CLOCK.now_ms())

    second = Scheduler(Journal(log_factory.open(BESIDE), CLOCK), {"verify": YEARLY, "downsample": YEARLY}, CLOCK)
    second.open()  # The first one was killed.
    assert second.due() == [], "a failed run waits"
    assert second.next_due("downsample") is None, "it is still paused"
    user.request("verify")
    ((kind, due),) = second.due()
    second.begin(kind, due.cause)
    second.end(kind, RunOutcome(RunResult.OK), CLOCK.now_ms())
    second.beat(ended=True)
    user.refresh()
    runs = user.view.states["verify"].runs
    assert runs is not None
    assert [run.outcome and (run.outcome.result, run.outcome.reason) for run in runs.runs] == [
        (RunResult.FAILED, "interrupted"),
        (RunResult.OK, ""),
    ]
    assert not user.view.application.is_live(CLOCK.now_ms())
