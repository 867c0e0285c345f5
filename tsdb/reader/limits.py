"""Limits: bounds series, samples and bytes of one read, and the memory of all answers of a process.

A request may lower the limits of the server. A read reserves an upper estimate of its memory before it gathers.
Afterwards it reserves the real size of its answer until that is sent. One connection reserves at most half of the
budget, so that the rest stays free for others. Answers of about one message are not counted: there are never more of
them than calls. Thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from tsdb.answer.spec import LabelsSpec, SelectSpec
from tsdb.model import defaults
from tsdb.model.errors import Overloaded
from tsdb.ops.byte_budget import ByteBudget
from tsdb.ops.grpc.slots import waiting
from tsdb.ops.metrics import counter, gauge

WATCHES_MAX = 16  # Each watch occupies a thread of the server, and the other threads must stay free for reads.
LABEL_VALUES_MAX = 1_000_000
SMALL_BYTES = 2 << 20
WAIT_S = 5.0  # Shorter than most callers' deadlines, longer than sending an answer takes when its caller reads it.
CHECK_EVERY_S = 0.1  # How often a waiting read checks its own deadline.
RETRY_AFTER_S = 1.0
# Bytes of a Python str in a set and in a list, and the number of copies of a text: in the set, the message and its
# bytes.
TEXT_BYTES, TEXT_COPIES = 150, 3

reserved_bytes = gauge(
    "tsdb_answers_bytes", "Memory of answers being gathered and sent; small answers are not counted."
)
refused_total = counter(
    "tsdb_answers_refused_total",
    "Reads refused for lack of memory: the answer is over half of answers_bytes_max, or none was free in time.",
    label="reason",
    values=("answer_too_large", "answers_bytes"),
)


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
