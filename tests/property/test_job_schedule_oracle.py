"""A virtual day of scheduled jobs, with pauses, requests, failures, kills and restarts: each run begins when a model
with one flag a cause says so. The scheduler computes the same from records in `meta`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from spark_backfill.application.journal import Journal
from spark_backfill.application.runs import KINDS, Cause, RunOutcome, RunResult
from spark_backfill.application.schedule import JITTER_MS, Schedule
from spark_backfill.application.scheduler import Scheduler
from support.examples import examples
from support.servers.logs import LogFactory
from tsdb.log.interface import Log
from tsdb.model.clock import ManualClock

STEP_MS = 60_000
DAY_STEPS = 24 * 60
BASE_MS = 1_767_225_600_000  # 2026-01-01T00:00Z, a midnight.

# Cron text, and the minutes of the day that it means.
CRONS: dict[str, Callable[[int], bool]] = {
    "* * * * *": lambda minute: True,
    "*/7 * * * *": lambda minute: minute % 60 % 7 == 0,
    "10 * * * *": lambda minute: minute % 60 == 10,
    "20 3,15 * * *": lambda minute: minute in (3 * 60 + 20, 15 * 60 + 20),
    "0 */6 * * *": lambda minute: minute % 360 == 0,
}

crons = st.lists(st.sampled_from([*CRONS, None]), min_size=len(KINDS), max_size=len(KINDS))
lengths = st.lists(st.sampled_from([1, 1, 2, 30, 200]), min_size=1, max_size=20)
# A delay is a hash of the log's random id. At 0 a due time is the minute itself; else it is before the next one.
delays = st.lists(st.sampled_from([0, 1, 30_000, JITTER_MS - 1]), min_size=len(KINDS), max_size=len(KINDS))
results = st.lists(
    st.sampled_from([RunResult.OK, RunResult.OK, RunResult.FAILED, RunResult.FINDINGS]), min_size=1, max_size=20
)
actions = st.sampled_from(["pause", "resume", "request", "kill", "stop", "start"])
events = st.lists(st.tuples(st.integers(1, DAY_STEPS - 1), actions, st.sampled_from(KINDS)), max_size=25)

Begin = tuple[int, str, bool]
"""(step, kind, whether a request is the cause)"""


@dataclass
class Modelled:
    """The model of one job kind. owed: whether a due time has passed. retry_at: step from which a retry may begin."""

    is_due: Callable[[int], bool]
    schedule: Schedule | None
    owed: bool = False
    retry_at: int | None = None
    requested: bool = False
    paused: bool = False
    failures: int = 0
    running: bool = False
    on_request: bool = False

    def pass_minute(self, step: int) -> None:
        """A delayed due time is within its minute, so it has passed one step later."""
        minute = step - 1 if self.schedule is not None and self.schedule.jitter_ms else step
        self.owed |= not self.paused and self.is_due(minute % DAY_STEPS)

    def switch(self, paused: bool) -> None:
        self.paused, self.owed = paused, False

    def begins(self, step: int) -> bool:
        if self.running or self.requested:
            return not self.running
        if self.paused or self.schedule is None:
            return False
        return self.owed or (self.retry_at is not None and self.retry_at <= step)

    def begin(self) -> None:
        self.running, self.on_request = True, self.requested
        self.owed, self.retry_at, self.requested = False, None, False

    def end(self, step: int, result: RunResult) -> None:
        if result is RunResult.FAILED:
            self.failures += 1
            self.owed, self.retry_at = False, step + min(2 ** (self.failures - 1), 60)
        elif result is RunResult.STOPPED:
            self.retry_at, self.requested = step, self.requested or self.on_request
        else:
            self.failures = 0
        self.running = False


@dataclass
class Day:
    """The scheduler and the model, in steps of a minute."""

    log: Log
    clock: ManualClock
    schedules: dict[str, Schedule | None]
    lengths: Iterator[int]
    results: Iterator[RunResult]
    ends: dict[str, int] = field(default_factory=dict)
    begun: list[Begin] = field(default_factory=list)
    wanted: list[Begin] = field(default_factory=list)
    step: int = 0

    def __post_init__(self) -> None:
        self.model = {
            kind: Modelled(CRONS[schedule.text] if schedule else lambda _: False, schedule)
            for kind, schedule in self.schedules.items()
        }
        self.user = Journal(self.log, self.clock)
        self.scheduler: Scheduler | None = None
        self.start()

    def start(self) -> None:
        if self.scheduler is not None:
            return
        self.scheduler = Scheduler(Journal(self.log, self.clock), self.schedules, self.clock)
        self.scheduler.open()
        for kind in [kind for kind, one in self.model.items() if one.running]:
            self.model[kind].end(self.step, RunResult.FAILED)

    def kill(self) -> None:
        self.scheduler = None
        self.ends.clear()

    def stop(self) -> None:
        if self.scheduler is None:
            return
        for kind in self.ends:
            self.scheduler.end(kind, RunOutcome(RunResult.STOPPED), self.clock.now_ms())
            self.model[kind].end(self.step, RunResult.STOPPED)
        self.kill()

    def act(self, action: str, kind: str) -> None:
        if action in ("kill", "stop", "start"):
            getattr(self, action)()
        elif action == "request":
            self.user.request(kind)
            self.model[kind].requested = True
        else:
            self.user.pause(kind, action == "pause")
            self.model[kind].switch(action == "pause")

    def next(self, acts: list[tuple[str, str]]) -> None:
        """One minute: time passes, runs end, users act, runs begin."""
        self.step += 1
        self.clock.advance(STEP_MS)
        for one in self.model.values():
            one.pass_minute(self.step)
        self._end_runs()
        for action, kind in acts:
            self.act(action, kind)
        if self.scheduler is not None:
            self._begin_runs(self.scheduler)

    def _end_runs(self) -> None:
        for kind in [kind for kind, end in self.ends.items() if end <= self.step]:
            assert self.scheduler is not None
            del self.ends[kind]
            result = next(self.results)
            self.scheduler.end(kind, RunOutcome(result), self.clock.now_ms())
            self.model[kind].end(self.step, result)

    def _begin_runs(self, scheduler: Scheduler) -> None:
        for kind, one in self.model.items():
            if one.begins(self.step):
                one.begin()
                self.wanted.append((self.step, kind, one.on_request))
        for kind, due in scheduler.due():
            assert kind not in self.ends, "two runs of one kind"
            scheduler.begin(kind, due.cause)
            self.begun.append((self.step, kind, due.cause is Cause.REQUEST))
            self.ends[kind] = self.step + next(self.lengths)


# Examples are not shrunk: one takes half a second, and its first difference is short to read.
@pytest.mark.slow
@settings(max_examples=examples(6, least=2), deadline=None, phases=[Phase.reuse, Phase.generate])
@given(texts=crons, delays_ms=delays, taken=lengths, ended=results, acts=events)
def test_every_run_of_a_day_begins_when_the_model_says(
    tmp_path_factory: pytest.TempPathFactory,
    texts: list[str | None],
    delays_ms: list[int],
    taken: list[int],
    ended: list[RunResult],
    acts: list[tuple[int, str, str]],
) -> None:
    folder = tmp_path_factory.mktemp("day")
    clock = ManualClock(BASE_MS)
    with LogFactory(f"sqlite:///{folder}/log.db", "") as factory:
        factory.create(partitions=1)
        delayed = [Schedule(text, delay) if text else None for text, delay in zip(texts, delays_ms, strict=True)]
        schedules = dict(zip(KINDS, delayed, strict=True))
        day = Day(factory.open(clock=clock), clock, schedules, itertools.cycle(taken), itertools.cycle(ended))
        for step in range(1, DAY_STEPS):
            day.next([(action, kind) for at, action, kind in acts if at == step])
    assert day.begun == day.wanted
