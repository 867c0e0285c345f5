"""Runner: the threads of the scheduled jobs. `spark-jobs` begins and ends runs; `spark-job-KIND` works for one kind.

A job's failure is an outcome and never leaves its thread. While the log does not answer, no run begins, and the end of
a run waits; the stream is not affected.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from spark_backfill.application import counts
from spark_backfill.application.runs import Cause, RunOutcome, RunResult
from spark_backfill.application.scheduler import Scheduler
from spark_backfill.result import JobResult
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import new_thread, report_failure

TURN_S = 0.5  # The longest delay of a begin and of a record of an end.
CANCEL_EVERY_S = 0.2
STOPPED = RunOutcome(RunResult.STOPPED, "stopped", "the application ended during the run")

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """run: does the work on the calling thread; it waits only on the clock that it receives.

    cancel: ends a run from another thread; called repeatedly until the run has ended.
    """

    run: Callable[[Clock], JobResult]
    cancel: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class End:
    """End of a run of a kind, before it is recorded."""

    kind: str
    at_ms: int
    outcome: RunOutcome


class StoppableClock:
    """A clock whose sleep ends with Unavailable (stopped) once the event is set."""

    def __init__(self, clock: Clock, stopping: threading.Event) -> None:
        self._clock = clock
        self._stopping = stopping

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise Unavailable("the application ends", reason="stopped")


class JobRunner:
    """Runs jobs, one run of a kind at a time. The methods are called on a thread other than its own.

    stopping: ends the runner when it is set, as `close` does, by any thread but by no signal handler.

    """

    def __init__(
        self,
        scheduler: Scheduler,
        jobs: Mapping[str, Job],
        clock: Clock,
        stopping: threading.Event | None = None,
        *,
        turn_s: float = TURN_S,
    ) -> None:
        self._scheduler = scheduler
        self._turn_s = turn_s
        self._jobs = jobs
        self._stopping = stopping or threading.Event()
        self._clock = StoppableClock(clock, self._stopping)
        # A thread for each kind, not for each run: PySpark keeps a connection and a JVM thread for every thread.
        self._begins: dict[str, SimpleQueue[bool]] = {kind: SimpleQueue() for kind in jobs}
        self._working: set[str] = set()
        self._ends: SimpleQueue[End] = SimpleQueue()
        self._unrecorded: dict[str, End] = {}
        self._is_open = False
        self.superseded = False
        """Whether the runner ended because another application runs the jobs."""
        self._failure: BaseException | None = None
        self._main = new_thread(self._run, "spark-jobs")

    @property
    def is_started(self) -> bool:
        return self._main.ident is not None

    def start(self) -> None:
        """Begin runs from now on. Call it when no other application runs."""
        for kind in self._jobs:
            # A daemon thread: a call that hangs does not keep the process from ending.
            new_thread(self._work, f"spark-job-{kind}", kind).start()
        self._main.start()

    def check(self) -> None:
        """Raises the error that ended a thread, which is a bug."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Begin no more runs and cancel those that run; returns at once."""
        self._stopping.set()

    def join(self, timeout_s: float) -> bool:
        """Wait until all runs have ended and their ends are recorded. False after the timeout."""
        if not self.is_started:
            return True
        self._main.join(timeout_s)
        return not self._main.is_alive()

    def _run(self) -> None:
        try:
            while not self.superseded and not self._stopping.wait(self._turn_s):
                self._guarded(self._turn)
            self._drain()
        except BaseException as error:
            self._failure = error
            report_failure(error, "spark-jobs")

    def _turn(self) -> None:
        if not self._is_open:
            self._scheduler.open()
            self._is_open = True
        self._record_ends()
        due_now = self._scheduler.due()
        if self._scheduler.superseded:
            log.warning("another application runs the scheduled jobs: those of this one end")
            self.superseded = True
            return
        for kind, due in due_now:
            self._begin(kind, due.cause)
        self._scheduler.beat()

    def _begin(self, kind: str, cause: Cause) -> None:
        self._scheduler.begin(kind, cause)
        self._working.add(kind)
        self._begins[kind].put(True)

    def _work(self, kind: str) -> None:
        try:
            while self._begins[kind].get():
                outcome = self._outcome_of(kind)
                self._ends.put(End(kind, self._clock.now_ms(), outcome))
        except BaseException as error:
            self._failure = error
            raise

    def _outcome_of(self, kind: str) -> RunOutcome:
        try:
            result = self._jobs[kind].run(self._clock)
        except Exception as error:
            if self._stopping.is_set():
                return STOPPED
            if isinstance(error, TsdbError):
                return RunOutcome(RunResult.FAILED, error.reason, error.message)
            log.error("a job failed with an unexpected error", kind=kind, exc_info=error)
            return RunOutcome(RunResult.FAILED, "internal", f"{type(error).__name__}: {error}")
        return RunOutcome(RunResult.OK if result.ok else RunResult.FINDINGS, figures=figures_of(result))

    def _record_ends(self) -> None:
        """Record the ends of runs; those that cannot be recorded now stay in `_unrecorded`."""
        while not self._ends.empty():
            self._take(self._ends.get())
        for kind, end in list(self._unrecorded.items()):
            self._scheduler.end(kind, end.outcome, end.at_ms)
            del self._unrecorded[kind]

    def _take(self, end: End) -> None:
        self._unrecorded[end.kind] = end
        self._working.remove(end.kind)

    def _drain(self) -> None:
        """Cancel until all runs have ended. A job may begin another Spark job after it was cancelled once."""
        while self._working:
            for kind in self._working:
                self._jobs[kind].cancel()
            with suppress(Empty):
                self._take(self._ends.get(timeout=CANCEL_EVERY_S))
        for begins in self._begins.values():
            begins.put(False)
        # The records of an application that was superseded are now those of the other one.
        if self._is_open and not self.superseded:
            self._guarded(self._record_ends)
            self._guarded(lambda: self._scheduler.beat(ended=True))

    def _guarded(self, step: Callable[[], None]) -> None:
        """Errors of the log are counted, and the next turn tries again."""
        try:
            step()
        except TsdbError as error:
            counts.meta_failures_total.inc()
            log.warning("the jobs' records do not answer", reason=error.reason, error=error.message)


def figures_of(result: JobResult) -> dict[str, int]:
    """The integers of a result."""
    figures = result.figures().items()
    return {name: value for name, value in figures if isinstance(value, int) and not isinstance(value, bool)}
