"""Hedge: a share that its store does not answer in time is read from other stores too, and the first answer counts.

A frozen process keeps its connections, so a read of it would wait for its deadline. The wait for the first message is
watched by one timer thread of the process. A hedge runs on its own thread; at most HEDGES_MAX run at once.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from tsdb.model.errors import TsdbError, worth_retrying
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.ops.threads import new_thread
from tsdb.query.stores.routing import Share
from tsdb.reader.read_call import Caller

# Most reads take milliseconds. A read of seconds is done twice, by two stores.
HEDGE_AFTER_S = 0.7
HEDGES_MAX = 16
FULL_AGAIN_S = 0.1

WON, LOST, FAILED, FULL = "won", "lost", "failed", "full"
hedges_total = counter(
    "tsdb_query_hedges_total",
    "Reads of a store without an answer within 0.7 s that were sent to other stores too: won, their answer was first; "
    "lost; failed, they could not answer; full, such a read waited because 16 others ran.",
    "result",
    (WON, LOST, FAILED, FULL),
)

log = get_logger(__name__)

Message = TypeVar("Message")
Start = Callable[[Share, Caller], Sequence[Iterator[Message]]]
Opened = tuple[Share, tuple[Message, ...], tuple[Iterator[Message], ...]]
"""A share, the first messages of its streams, and the streams."""


class HedgeTimer:
    """Runs functions later, on one daemon thread, which starts with the first of them. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # Guards both below.
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._thread: threading.Thread | None = None
        self._numbers = itertools.count()

    def after(self, seconds: float, run: Callable[[], None]) -> None:
        """run: returns at once, and does nothing when it came too late."""
        with self._changed:
            due = time.monotonic() + seconds
            heapq.heappush(self._waiting, (due, next(self._numbers), run))
            if self._thread is None:
                self._thread = new_thread(self._loop, "hedges")
                self._thread.start()
            elif self._waiting[0][0] == due:
                self._changed.notify()

    def _loop(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    self._changed.wait()
                left_s = self._waiting[0][0] - time.monotonic()
                if left_s > 0:
                    self._changed.wait(left_s)
                    continue
                run = heapq.heappop(self._waiting)[2]
            run()


class HedgePlan:
    """after_s: time after which a share is hedged. The plan of a process has one timer, and a limit of hedges at one
    time.
    """

    def __init__(self, after_s: float = HEDGE_AFTER_S, hedges_max: int = HEDGES_MAX) -> None:
        self.after_s = after_s
        self.timer = HedgeTimer()
        self.capacity = threading.BoundedSemaphore(hedges_max)


HEDGES = HedgePlan()


class Attempt:
    """The Caller of the calls of one attempt. The calls end with the read, or with `end`. Thread-safe."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._lock = threading.Lock()  # Guards both below; an innermost lock.
        self._ended = False
        self._callbacks: list[Callable[[], None]] = []

    def time_remaining(self) -> float | None:
        return self._caller.time_remaining()

    def is_active(self) -> bool:
        return not self._ended and self._caller.is_active()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        with self._lock:
            if self._ended:
                return False
            self._callbacks.append(callback)
        return self._caller.add_callback(callback)

    def peer(self) -> str:
        return self._caller.peer()

    def end(self) -> None:
        """End the calls of this attempt."""
        with self._lock:
            self._ended = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class HedgeError(Exception):
    """The error of a share that another store has refused first. share: the share of that store."""

    def __init__(self, share: Share, error: TsdbError) -> None:
        super().__init__(error.message)
        self.share = share
        self.error = error


class Hedged(Generic[Message]):
    """One share that is being read. alternatives: shares of other stores that together have its partitions. `first` is
    called once, on the thread of the read."""

    def __init__(
        self,
        share: Share,
        alternatives: Sequence[Share],
        start: Start[Message],
        first_of: Callable[[Share, Iterator[Message]], Message],
        caller: Caller,
        plan: HedgePlan = HEDGES,
    ) -> None:
        self.share = share
        self._alternatives = alternatives
        self._start = start
        self._first_of = first_of
        self._caller = caller
        self._plan = plan
        self._lock = threading.Lock()  # Guards all below.
        self._is_over = False
        self._found: list[Opened[Message]] | HedgeError | None = None
        self._attempts: list[Attempt] = []
        self._own = Attempt(caller)
        self._streams = tuple(start(share, self._own))
        plan.timer.after(plan.after_s, self._due)

    def first(self) -> list[Opened[Message]]:
        """The shares that answer, with their first messages. Raises TsdbError of the share, HedgeError."""
        firsts: tuple[Message, ...] = ()
        error: TsdbError | None = None
        try:
            firsts = tuple(self._first_of(self.share, stream) for stream in self._streams)
        except TsdbError as refusal:
            error = refusal
        found = self._end()
        if error is not None or found is not None:  # A hedge that was faster has ended the calls of this share.
            close(self._streams)
        if isinstance(found, HedgeError):
            raise found from found.error
        if found is not None:
            return found
        if error is not None:
            raise error
        return [(self.share, firsts, self._streams)]

    def _end(self) -> list[Opened[Message]] | HedgeError | None:
        """End all attempts; a later answer no longer counts. Returns the attempt that was first."""
        with self._lock:
            if self._is_over:
                return self._found
            self._is_over = True
            attempts = self._attempts
        for attempt in attempts:
            attempt.end()
        return None

    def _due(self) -> None:
        """Hedge the share. Runs on the timer's thread."""
        with self._lock:
            if self._is_over:
                return
        if not self._plan.capacity.acquire(blocking=False):
            hedges_total.labels(FULL).inc()
            self._plan.timer.after(FULL_AGAIN_S, self._due)
            return
        new_thread(self._run, "hedge").start()

    def _run(self) -> None:
        try:
            found = self._answers()
            if found is None:
                hedges_total.labels(FAILED).inc()
                return
            with self._lock:
                is_first = not self._is_over
                if is_first:
                    self._is_over, self._found = True, found
            hedges_total.labels(WON if is_first else LOST).inc()
            if is_first:
                self.share.store.suspect()
                self._own.end()
            elif not isinstance(found, HedgeError):
                for _, _, streams in found:
                    close(streams)
        except Exception as bug:
            # The read itself still has its own store, so a hedge that fails must end neither the read nor the process.
            hedges_total.labels(FAILED).inc()
            log.error("a hedge failed", error=str(bug), exc_info=True)
        finally:
            self._plan.capacity.release()

    def _answers(self) -> list[Opened[Message]] | HedgeError | None:
        """The answers of the alternatives. None when they cannot answer now."""
        found: list[Opened[Message]] = []
        for share in self._alternatives:
            attempt = Attempt(self._caller)
            with self._lock:
                if self._is_over:
                    attempt.end()
                self._attempts.append(attempt)
            streams = tuple(self._start(share, attempt))
            try:
                found.append((share, tuple(self._first_of(share, stream) for stream in streams), streams))
            except TsdbError as error:
                for opened in (*(streams for _, _, streams in found), streams):
                    close(opened)
                return None if worth_retrying(error) or not attempt.is_active() else HedgeError(share, error)
        return found


def close(streams: Sequence[Any]) -> None:
    for stream in streams:
        stream.close()
