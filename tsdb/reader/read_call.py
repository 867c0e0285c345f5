"""Read call: the deadline of one read, whether its caller still waits, and the memory that its answer holds.

A read checks its call between pieces of work: between pieces of matching, partitions and stretches of history.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from tsdb.model import defaults
from tsdb.model.errors import Overloaded, Unavailable
from tsdb.ops.metrics import counter
from tsdb.reader.drain import Drain
from tsdb.reader.limits import AnswerBytes, ReservedBytes

SLACK_S = 0.1  # A call to a store with this read's deadline may end slightly before that deadline by this clock.

abandoned_total = counter(
    "tsdb_reads_abandoned_total",
    "Reads ended before their answer was complete: over read_timeout_s, or the caller left.",
    label="reason",
    values=("read_timeout", "cancelled"),
)


class Caller(Protocol):
    """The call of a reader. A grpc.ServicerContext implements this protocol."""

    def time_remaining(self) -> float | None:
        """Seconds until the caller's deadline; None: no deadline."""

    def is_active(self) -> bool:
        """Whether the caller still waits for the answer."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Run `callback` when the call ends. False: the call has ended already, and `callback` is not run."""

    def peer(self) -> str:
        """Address of the caller's connection."""


class ReadWork(Protocol):
    """The bounds on the work of one read."""

    def check_going(self) -> None:
        """Raises when the read need not go on."""

    def hold(self, size: int) -> None:
        """Set the memory of the read and its answer to `size` bytes in total. Waits for capacity, or raises."""


class NoBounds:
    """A ReadWork without bounds, for example in tests."""

    def check_going(self) -> None:
        pass

    def hold(self, size: int) -> None:
        pass


NO_BOUNDS = NoBounds()


class ReadCall:
    """One read. It is a ReadWork, and the Caller of the calls that it makes to stores, which end with it."""

    def __init__(
        self,
        caller: Caller,
        timeout_s: float,
        monotonic: Callable[[], float] = time.monotonic,
        answers: AnswerBytes | None = None,
        drain: Drain | None = None,
    ) -> None:
        self._caller = caller
        self._drain = drain or Drain()
        self._drained = False
        self._callbacks: list[Callable[[], None]] = []
        self._answers = answers or AnswerBytes()
        self._held = ReservedBytes(self._answers, caller.peer)
        self._values = ReservedBytes(self._answers, caller.peer)
        self.kept_bytes = 0  # See `keep`.
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._ends_at = monotonic() + timeout_s

    def time_remaining(self) -> float:
        """Seconds until the earlier deadline: the caller's or this server's."""
        own_s, callers_s = self._ends_at - self._monotonic(), self._caller.time_remaining()
        return own_s if callers_s is None else min(own_s, callers_s)

    def is_active(self) -> bool:
        return not self._drained and self._caller.is_active()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return not self._drained and self._caller.add_callback(callback)

    def peer(self) -> str:
        return self._caller.peer()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The read waits for records of other processes inside the block. The end of this process ends the wait.

        Raises Unavailable (draining).
        """
        with self._drain.wait(self._end):
            yield

    def _end(self) -> None:
        # Set the mark first: a call that begins now sees it, and one that began before is among the callbacks.
        self._drained = True
        for callback in list(self._callbacks):
            callback()

    def is_over(self, slack_s: float = 0.0) -> bool:
        """Whether this server's time limit for a read has passed."""
        return self._monotonic() + slack_s >= self._ends_at

    def check_going(self) -> None:
        """Raises Unavailable (cancelled) when the caller has left, Overloaded (read_timeout) past the time limit."""
        left_s = self._caller.time_remaining()
        if not self._caller.is_active() or (left_s is not None and left_s <= 0):
            abandoned_total.labels("cancelled").inc()
            raise Unavailable("the caller no longer waits for this answer", reason="cancelled")
        if self._monotonic() >= self._ends_at:  # As is_over: each read checks several times.
            raise self.over()

    def hold(self, size: int) -> None:
        """Implements ReadWork.hold. Raises Overloaded: answer_too_large, answers_bytes."""
        self._held.hold(self.kept_bytes + size, self.check_going)

    def keep(self, size: int) -> None:
        """Set the memory of finished parts of the answer to `size` bytes. The next `hold` counts in addition. Raises
        the errors of `hold`."""
        self.kept_bytes = size
        self.hold(0)

    def hold_values(self, size: int) -> None:
        """Set the memory of values that are computed from the samples to `size` bytes. It counts in addition to `hold`
        and `keep`. Raises the errors of `hold`."""
        self._values.hold(size, self.check_going)

    @contextmanager
    def part(self) -> Iterator[ReadWork]:
        """The work of a store of this process for this read. Its memory counts beside that of the read until the end of
        the block."""
        held = ReservedBytes(self._answers, self._caller.peer)
        try:
            yield _Part(self, held)
        finally:
            held.release()

    def release(self) -> None:
        """Release the memory: the answer is sent or abandoned."""
        self._held.release()
        self._values.release()

    def release_when_sent(self) -> None:
        """Release the memory when the call ends: an answer of one message is sent after the handler has returned."""
        held, self._held = self._held, ReservedBytes(self._answers, self._caller.peer)
        if not self._caller.add_callback(held.release):
            held.release()

    def over(self) -> Overloaded:
        """The error of a read over the time limit. The read counts as abandoned."""
        abandoned_total.labels("read_timeout").inc()
        # No retry hint: the same read would take as long on any replica.
        return Overloaded(
            f"the read took over {self._timeout_s:g} s, which is the limit (read_timeout_s): ask for a shorter range,"
            " fewer series or a simpler regular expression",
            reason="read_timeout",
            limit=f"{self._timeout_s:g}",
        )


class _Part:
    """A ReadWork within a ReadCall. held: the reservation of the part."""

    __slots__ = ("_held", "check_going")

    def __init__(self, call: ReadCall, held: ReservedBytes) -> None:
        self._held = held
        self.check_going = call.check_going

    def hold(self, size: int) -> None:
        self._held.hold(size, self.check_going)


@dataclass(frozen=True, slots=True)
class ReadCalls:
    """Settings that all reads of a process share. timeout_s: time limit of one read, waits included."""

    timeout_s: float = defaults.READ_TIMEOUT_S
    answers: AnswerBytes = field(default_factory=AnswerBytes)
    monotonic: Callable[[], float] = time.monotonic
    drain: Drain = field(default_factory=Drain)

    @contextmanager
    def of(self, caller: Caller) -> Iterator[ReadCall]:
        """Make the ReadCall of a caller for the duration of the block. Its memory is released at the end."""
        call = ReadCall(caller, self.timeout_s, self.monotonic, self.answers, self.drain)
        try:
            yield call
        except Unavailable as error:
            if error.reason == "deadline" and call.is_over(SLACK_S):  # This server's limit ended the call of a store.
                raise call.over() from error
            raise
        finally:
            call.release()

    @contextmanager
    def watch(self, caller: Caller) -> Iterator[ReadCall]:
        """The ReadCall of a Watch, which has no time limit and waits all the time. Raises Unavailable (draining)."""
        call = ReadCall(caller, math.inf, self.monotonic, self.answers, self.drain)
        with call.waiting():
            yield call
