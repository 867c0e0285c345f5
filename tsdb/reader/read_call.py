"""Read call: the limits, the deadline and the memory of one read, and whether its caller still waits.

A read checks its call between pieces of work: between pieces of matching, partitions and stretches of history. It
reserves an upper estimate of its memory before it gathers, and afterwards the real size of its answer until that is
sent. One connection reserves at most half of the budget, so that the rest stays free for others. Answers of about one
message are not counted: there are never more of them than calls.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from tsdb.answer.spec import LabelsSpec, SelectSpec
from tsdb.model import defaults
from tsdb.model.errors import Overloaded, Unavailable
from tsdb.ops.byte_budget import ByteBudget
from tsdb.ops.grpc.slots import waiting
from tsdb.ops.metrics import counter, gauge
from tsdb.reader.drain import Drain

WATCHES_MAX = 16  # Each watch occupies a thread of the server, and the other threads must stay free for reads.
LABEL_VALUES_MAX = 1_000_000
SMALL_BYTES = 2 << 20
WAIT_S = 5.0  # Shorter than most callers' deadlines, longer than sending an answer takes when its caller reads it.
CHECK_EVERY_S = 0.1  # How often a waiting read checks its own deadline.
RETRY_AFTER_S = 1.0
# Bytes of a Python str in a set and in a list, and the number of copies of a text: in the set, the message and its
# bytes.
TEXT_BYTES, TEXT_COPIES = 150, 3
SLACK_S = 0.1  # A call to a store with this read's deadline may end slightly before that deadline by this clock.

reserved_bytes = gauge(
    "tsdb_answers_bytes", "Memory of answers being gathered and sent; small answers are not counted."
)
refused_total = counter(
    "tsdb_answers_refused_total",
    "Reads refused for lack of memory: the answer is over half of answers_bytes_max, or none was free in time.",
    label="reason",
    values=("answer_too_large", "answers_bytes"),
)
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

    def __enter__(self) -> ReadCall:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.release()
        # This server's limit ended the call of a store.
        if isinstance(error, Unavailable) and error.reason == "deadline" and self.is_over(SLACK_S):
            raise self.over() from error

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
class SelectLimits:
    """Limits of one Select. series: matched series. samples: number of samples before trimming. bytes: payload of the
    answer.
    """

    series_max: int = defaults.SELECT_SERIES_MAX
    samples_max: int = defaults.SELECT_SAMPLES_MAX
    bytes_max: int = defaults.SELECT_BYTES_MAX

    def lowered(self, series_max: int, samples_max: int, bytes_max: int) -> SelectLimits:
        """The lower limit of each pair. 0 in the request means no limit of the request."""
        return SelectLimits(
            min(self.series_max, series_max or self.series_max),
            min(self.samples_max, samples_max or self.samples_max),
            min(self.bytes_max, bytes_max or self.bytes_max),
        )

    def of(self, spec: SelectSpec) -> SelectSpec:
        """The spec with these limits, for the stores that answer it."""
        return replace(spec, series_max=self.series_max, samples_max=self.samples_max, bytes_max=self.bytes_max)

    def check_series(self, got: int) -> None:
        """Raises Overloaded (series_limit)."""
        if got > self.series_max:
            raise _over("series", got, self.series_max)

    def check_samples(self, got: int) -> None:
        """Raises Overloaded (samples_limit)."""
        if got > self.samples_max:
            raise _over("samples", got, self.samples_max)

    def check_bytes(self, got: int) -> None:
        """Raises Overloaded (bytes_limit)."""
        if got > self.bytes_max:
            raise _over("bytes", got, self.bytes_max)


def values_max(spec: LabelsSpec) -> int:
    """The most values of a label in an answer."""
    return min(LABEL_VALUES_MAX, spec.values_max or LABEL_VALUES_MAX)


def check_values(spec: LabelsSpec, values: int) -> None:
    """Raises Overloaded (values_limit) when a label has more values than the read or the server allows."""
    if spec.name is not None and values > (limit := values_max(spec)):
        raise Overloaded(
            f"label {spec.name!r} has over {limit} values; add matchers", reason="values_limit", limit=limit
        )


def _over(name: str, got: int, limit: int) -> Overloaded:
    return Overloaded(
        f"the answer has {got} {name}; limit is {limit}: ask for a shorter range or fewer series",
        reason=f"{name}_limit",
        limit=limit,
        asked=got,
    )


class AnswerBytes:
    """bytes_max: bound of all answers together. wait_s: how long a read waits for capacity. small_bytes: answers up to
    this size are not counted."""

    def __init__(
        self, bytes_max: int = defaults.ANSWERS_BYTES_MAX, *, wait_s: float = WAIT_S, small_bytes: int = SMALL_BYTES
    ) -> None:
        self.small_bytes = small_bytes
        self._budget = ByteBudget(bytes_max, share_max=bytes_max // 2, gauge=reserved_bytes)
        self._wait_s = wait_s

    def take(self, peer: str, size: int, held: int, check_going: Callable[[], None]) -> None:
        """Reserve `size` more bytes for a read on connection `peer` that has reserved `held` bytes. Waits for capacity.

        Raises Overloaded: answer_too_large (a retry does not help), or answers_bytes when the capacity did not suffice
        in time.

        """
        if size + held > self._budget.share_max:
            refused_total.labels("answer_too_large").inc()
            raise Overloaded(
                f"the answer needs {size + held} bytes of memory; limit is {self._budget.share_max}, half of"
                " answers_bytes_max: ask for a shorter range or fewer series",
                reason="answer_too_large",
                limit=self._budget.share_max,
                asked=size + held,
            )
        if not self._budget.take(size, owner=peer):
            with waiting():
                self._wait(peer, size, check_going)

    def give_back(self, peer: str, size: int) -> None:
        """Release `size` bytes that were sent or are no longer needed."""
        self._budget.give_back(size, peer)

    def _wait(self, peer: str, size: int, check_going: Callable[[], None]) -> None:
        give_up_at = time.monotonic() + self._wait_s
        while not self._budget.take(size, owner=peer, within_s=CHECK_EVERY_S):
            check_going()
            if time.monotonic() >= give_up_at:
                refused_total.labels("answers_bytes").inc()
                budget, own = self._budget, self._budget.bytes_of(peer)
                raise Overloaded(
                    f"answers being gathered and sent take {budget.bytes} bytes, {own} of them on this connection, and"
                    f" {size} more found no room in {self._wait_s:g} s; limit is answers_bytes_max {budget.bytes_max},"
                    " half of it a connection: read answers to their end, then try again",
                    reason="answers_bytes",
                    retry_after_s=RETRY_AFTER_S,
                    limit=budget.bytes_max,
                    asked=size,
                )


class ReservedBytes:
    """The reservation of one read. One thread at a time. peer: returns the connection of the read."""

    __slots__ = ("_answers", "_held", "_peer", "_peer_of", "_small_bytes")

    def __init__(self, answers: AnswerBytes, peer: Callable[[], str]) -> None:
        self._answers = answers
        self._small_bytes = answers.small_bytes
        self._peer_of = peer
        self._peer = ""
        self._held = 0

    def hold(self, size: int, check_going: Callable[[], None]) -> None:
        """Change the reservation to `size` bytes in total. Raises as AnswerBytes.take."""
        wanted = size if size > self._small_bytes else 0
        if wanted > self._held:
            self._peer = self._peer or self._peer_of()
            self._answers.take(self._peer, wanted - self._held, self._held, check_going)
        elif wanted < self._held:
            self._answers.give_back(self._peer, self._held - wanted)
        self._held = wanted

    def release(self) -> None:
        if self._held:
            self._answers.give_back(self._peer, self._held)
            self._held = 0


def texts_bytes(texts: Collection[str]) -> int:
    """Memory of distinct texts, in a set and in the message that carries them."""
    return TEXT_BYTES * len(texts) + TEXT_COPIES * sum(map(len, texts))


@dataclass(frozen=True, slots=True)
class ReadCalls:
    """Settings that all reads of a process share. timeout_s: time limit of one read, waits included."""

    timeout_s: float = defaults.READ_TIMEOUT_S
    answers: AnswerBytes = field(default_factory=AnswerBytes)
    monotonic: Callable[[], float] = time.monotonic
    drain: Drain = field(default_factory=Drain)

    def of(self, caller: Caller) -> ReadCall:
        """The ReadCall of a caller, for a `with` block: its memory is released at the end."""
        return ReadCall(caller, self.timeout_s, self.monotonic, self.answers, self.drain)

    @contextmanager
    def watch(self, caller: Caller) -> Iterator[ReadCall]:
        """The ReadCall of a Watch, which has no time limit and waits all the time. Raises Unavailable (draining)."""
        call = ReadCall(caller, math.inf, self.monotonic, self.answers, self.drain)
        with call.waiting():
            yield call
