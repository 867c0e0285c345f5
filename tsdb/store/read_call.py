"""Read call: until when one read may go on, whether its caller still waits, and what memory its answer holds.

Reads look at it between pieces of work: between pieces of matching, between partitions, between stretches of history.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from tsdb.model.errors import Overloaded, Unavailable
from tsdb.ops.metrics import counter
from tsdb.store.answer_bytes import AnswerBytes, HeldBytes

SLACK_S = 0.1  # A store's call with our deadline may end a little before it by our clock.

abandoned_total = counter(
    "tsdb_reads_abandoned_total",
    "Reads ended before their answer was complete: over read_timeout_s, or their caller had gone.",
    label="reason",
    values=("read_timeout", "cancelled"),
)


class Caller(Protocol):
    """The call of a reader. A grpc.ServicerContext is one."""

    def time_remaining(self) -> float | None:
        """Seconds until the caller gives up; None: it does not."""

    def is_active(self) -> bool:
        """Whether the caller still listens."""

    def add_callback(self, callback: Callable[[], None]) -> bool:
        """Call it when the call ends; False when it has ended already."""

    def peer(self) -> str:
        """The connection of the caller."""


class ReadWork(Protocol):
    """What bounds the work of one read."""

    def check_going(self) -> None:
        """Raises when the read need not go on."""

    def hold(self, size: int) -> None:
        """The read and its answer have so many bytes of memory from now on, in all. Waits for room, or raises."""


class NoBounds:
    """Of a read that nothing bounds, such as one of a test."""

    def check_going(self) -> None:
        """It goes on."""

    def hold(self, size: int) -> None:
        """It may."""


NO_BOUNDS = NoBounds()


class ReadCall:
    """One read, a Caller itself: what a read asks of stores ends with it. A ReadWork."""

    def __init__(
        self,
        caller: Caller,
        timeout_s: float,
        monotonic: Callable[[], float] = time.monotonic,
        answers: AnswerBytes | None = None,
    ) -> None:
        self._caller = caller
        self._answers = answers or AnswerBytes()
        self._held = HeldBytes(self._answers, caller.peer)
        self._timeout_s = timeout_s
        self._monotonic = monotonic
        self._ends_at = monotonic() + timeout_s

    def time_remaining(self) -> float:
        """Seconds until the caller or this server gives up."""
        own_s, callers_s = self._ends_at - self._monotonic(), self._caller.time_remaining()
        return own_s if callers_s is None else min(own_s, callers_s)

    def is_active(self) -> bool:
        return self._caller.is_active()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        return self._caller.add_callback(callback)

    def peer(self) -> str:
        return self._caller.peer()

    def is_over(self, slack_s: float = 0.0) -> bool:
        """Whether this server's own time for a read is over."""
        return self._monotonic() + slack_s >= self._ends_at

    def check_going(self) -> None:
        """Raises Unavailable (cancelled) when nobody waits for the answer, Overloaded (read_timeout) past the limit."""
        if isinstance(self._caller, ReadCall):  # Of a querier in this process, whose refusal says which time is over.
            self._caller.check_going()
        left_s = self._caller.time_remaining()
        if not self._caller.is_active() or (left_s is not None and left_s <= 0):
            abandoned_total.labels("cancelled").inc()
            raise Unavailable("the caller no longer waits for this answer", reason="cancelled")
        if self.is_over():
            raise self.over()

    def hold(self, size: int) -> None:
        """As ReadWork. Raises Overloaded: answer_too_large, answers_bytes."""
        self._held.hold(size, self.check_going)

    def release(self) -> None:
        """The answer is sent, or given up."""
        self._held.release()

    def release_when_sent(self) -> None:
        """For an answer of one message, which is sent when the handler has returned."""
        held, self._held = self._held, HeldBytes(self._answers, self._caller.peer)
        if not self._caller.add_callback(held.release):
            held.release()

    def over(self) -> Overloaded:
        """The refusal of a read that takes too long."""
        abandoned_total.labels("read_timeout").inc()
        # Without a hint to try again: the same read would take as long on any replica.
        return Overloaded(
            f"the read took over {self._timeout_s:g} s, which is the limit (read_timeout_s): ask for a shorter range,"
            " fewer series or a simpler regular expression",
            reason="read_timeout",
            limit=f"{self._timeout_s:g}",
        )


@dataclass(frozen=True, slots=True)
class ReadCalls:
    """What holds for every read of a process. timeout_s: of one read, its waits included."""

    timeout_s: float = 120.0
    answers: AnswerBytes = field(default_factory=AnswerBytes)

    @contextmanager
    def of(self, caller: Caller) -> Iterator[ReadCall]:
        """The read of a caller."""
        call = ReadCall(caller, self.timeout_s, answers=self.answers)
        try:
            yield call
        except Unavailable as error:
            if error.reason == "deadline" and call.is_over(SLACK_S):  # A store of this querier ended by our time.
                raise call.over() from error
            raise
        finally:
            call.release()
