"""EvaluationContext: the steps, storage and bounds of one evaluation, and the annotations that it gathers: warnings and
infos, each with its position in the text, in the words of Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.storage import Storage
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.evaluate.vectors.labels import Pool
from tsdb.promql.syntax.durations import duration_ms
from tsdb.promql.syntax.numbers import shown_g
from tsdb.promql.syntax.tree import Duration, Expression
from tsdb.selector.tokens import TextSpan, place

# Bound of the values that subqueries compute and ranges visit. A query without reads has it, each series that is read
# adds it, and each sample adds visits for each step.
SUBQUERY_WORK_MAX = 20_000_000
SUBQUERY_WORK_A_SAMPLE = 11_000

VALUE_BYTES = 9  # A float64, and whether it is present.


class ValuesInHand:
    """Counts the results of the parts of an expression until the result of the whole replaces them.

    hold: is called with the bytes of all current values whenever they change; raises when the memory is exhausted.
    Used by one query, on one thread.
    """

    __slots__ = ("_hold", "bytes")

    def __init__(self, hold: Callable[[int], None]) -> None:
        self._hold = hold
        self.bytes = 0

    def admit(self, size: int) -> None:
        """Reserve `size` bytes beside the current values. The next `replace` releases them."""
        self._hold(self.bytes + size)

    def replace(self, before: int, size: int) -> None:
        """A result of `size` bytes replaces all values that came into hand after there were `before` bytes."""
        self.bytes = before + size
        self._hold(self.bytes)


class SubqueryWork:
    """Counts the work of one query on its subqueries. Samples that are read allow more work; subqueries of constants
    read none."""

    def __init__(self) -> None:
        self._done = 0
        self._max = SUBQUERY_WORK_MAX

    def read(self, series: int, samples: int) -> None:
        """series, samples: numbers of series and samples that the query has read."""
        self._max += series * SUBQUERY_WORK_MAX + samples * SUBQUERY_WORK_A_SAMPLE

    def add(self, values: int) -> None:
        """values: number of computed values, and of values that ranges visit. Raises EvaluationError
        (too_many_samples).
        """
        self._done += max(0, values)
        if self._done > self._max:
            raise EvaluationError(
                f"query processing would compute too many values: {self._done} in subqueries over all their steps; the"
                f" limit is {self._max} for what the query has read, ask for a larger step or a shorter range",
                reason="too_many_samples",
            )


@dataclass(slots=True)
class ForcedMonotonicity:
    """Buckets of a histogram whose counts decreased and were raised. Times in milliseconds."""

    min_bound: float
    max_bound: float
    max_difference: float
    samples: int
    first_ms: int
    last_ms: int

    def join(self, other: ForcedMonotonicity) -> None:
        """Merge the buckets of another object."""
        self.min_bound = min(self.min_bound, other.min_bound)
        self.max_bound = max(self.max_bound, other.max_bound)
        self.max_difference = max(self.max_difference, other.max_difference)
        self.samples += other.samples
        self.first_ms = min(self.first_ms, other.first_ms)
        self.last_ms = max(self.last_ms, other.last_ms)

    @property
    def text(self) -> str:
        """The details behind the message."""
        first, last = (
            datetime.fromtimestamp(ms // 1000, UTC).isoformat().replace("+00:00", "Z")
            for ms in (self.first_ms, self.last_ms)
        )
        largest = f"{self.max_difference:.2g}".replace("inf", "+Inf")
        return (
            f", from buckets {shown_g(self.min_bound)} to {shown_g(self.max_bound)}, with a max diff of "
            f"{largest}, over {self.samples} samples from {first} to {last}"
        )


@dataclass(slots=True)
class Annotations:
    """Problems, each once, at the position of its last occurrence, as in Prometheus. text: text of the query."""

    text: str
    _warnings: dict[str, TextSpan] = field(default_factory=dict)
    _infos: dict[str, TextSpan] = field(default_factory=dict)
    _forced: dict[str, ForcedMonotonicity] = field(default_factory=dict)
    _of_storage: dict[str, None] = field(default_factory=dict)

    def warn(self, problem: str, span: TextSpan) -> None:
        """Add a warning: the result is likely not what the query means."""
        self._warnings[problem] = span

    def warn_of_quantile(self, quantile: float, span: TextSpan) -> None:
        """Add a warning of a quantile outside of [0, 1]."""
        self.warn(f"quantile value should be between 0 and 1, got {shown_g(quantile)}", span)

    def warn_of_storage(self, problem: str) -> None:
        """Add what a read left out because the request allows it."""
        self._of_storage[problem] = None

    def inform(self, problem: str, span: TextSpan) -> None:
        """Add an info: the query may be mistaken."""
        self._infos[problem] = span

    def inform_of_monotonicity(self, found: ForcedMonotonicity, metric: str, span: TextSpan) -> None:
        """Add an info of a histogram whose buckets had to be raised."""
        problem = (
            "input to histogram_quantile needed to be fixed for monotonicity (see "
            "https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile)"
        ) + (f' for metric name "{metric}"' if metric else "")
        self._infos.setdefault(problem, span)  # Infos keep the first position.
        known = self._forced.setdefault(problem, found)
        if known is not found:
            known.join(found)

    @property
    def warnings(self) -> tuple[str, ...]:
        """All warnings, those of the storage first."""
        if not self._warnings:
            return tuple(self._of_storage)
        placed = (f"PromQL warning: {problem}{self._place(span)}" for problem, span in self._warnings.items())
        return (*self._of_storage, *placed)

    @property
    def infos(self) -> tuple[str, ...]:
        """All infos, each with its position."""
        if not self._infos:
            return ()
        return tuple(
            f"PromQL info: {problem}{self._forced[problem].text if problem in self._forced else ''}{self._place(span)}"
            for problem, span in self._infos.items()
        )

    def _place(self, span: TextSpan) -> str:
        return f" ({place(self.text, span.start)})"


@dataclass(slots=True)  # Not frozen: that would take 2 us more of each query.
class EvaluationContext:
    """start_ms, end_ms, step_ms: steps of this part. query_start_ms, query_end_ms and query_step_ms: steps of the whole
    query.

    An instant query has one step and step_ms 0. is_fixed: whether a node has the same value at all steps.
    needs_totals: whether the histograms of a selector need no buckets. start_timestamps: whether functions of
    counters use the start timestamps of samples. values_max: bound of one vector, over all its steps. in_hand,
    subqueries: memory and work of the whole query. steps: number of steps, at least 1.
    """

    is_fixed: Callable[[Expression], bool]
    needs_totals: Callable[[Expression], bool]
    storage: Storage
    annotations: Annotations
    pool: Pool
    start_ms: int
    end_ms: int
    step_ms: int
    query_start_ms: int
    query_end_ms: int
    query_step_ms: int
    lookback_ms: int
    subquery_step_ms: int
    delays_name_removal: bool
    start_timestamps: bool
    values_max: int
    in_hand: ValuesInHand
    check: Callable[[], None]
    subqueries: SubqueryWork = field(default_factory=SubqueryWork)
    steps: int = field(init=False)
    _times_ms: NDArray[np.int64] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.steps = 1 if self.step_ms == 0 else (self.end_ms - self.start_ms) // self.step_ms + 1

    @property
    def times_ms(self) -> NDArray[np.int64]:
        """Time of each step, int64 (steps,), read-only. Made at its first use: by then the steps are admitted."""
        times_ms = self._times_ms
        if times_ms is None:
            if self.step_ms == 0:
                times_ms = np.array([self.start_ms], np.int64)
            else:
                times_ms = np.arange(self.start_ms, self.end_ms + 1, self.step_ms, dtype=np.int64)
            self._times_ms = times_ms
        return times_ms

    def at(self, start_ms: int, end_ms: int, step_ms: int) -> EvaluationContext:
        """The context of the same query at other steps."""
        context = replace(self, start_ms=start_ms, end_ms=end_ms, step_ms=step_ms)
        context.admit(1, context.steps)
        return context

    def length_ms(self, node: Duration) -> int:
        """A range or a step of the query in milliseconds. Raises QueryError unless it is above 0."""
        return self._duration_ms(node, is_positive=True)

    def offset_ms(self, node: Duration) -> int:
        """An offset of the query in milliseconds. Raises QueryError where it has no value."""
        return self._duration_ms(node, is_positive=False)

    def _duration_ms(self, node: Duration, *, is_positive: bool) -> int:
        query_range_ms = self.query_end_ms - self.query_start_ms
        text, step_ms = self.annotations.text, self.query_step_ms
        return duration_ms(node, text, step_ms, query_range_ms, is_positive=is_positive)

    def without_name(self, block: Block) -> Block:
        """The block without names, or marked for that where names go at the end of the query. Raises
        EvaluationError."""
        if self.delays_name_removal:
            return replace(block, loses_name=np.ones(len(block), np.bool_))
        return block.without_name()

    def checked(self, block: Block) -> Block:
        """Merge series of equal labels in the block. Raises EvaluationError when that is impossible.

        Where names are removed at the end of the query, labels at a single time may be equal until then.
        """
        return block if self.delays_name_removal and self.start_ms == self.end_ms else block.merged()

    def admit(self, series: int, steps: int) -> None:
        """Call before the allocation of a vector.

        Raises EvaluationError for a vector that is too large, and what `in_hand` raises.
        """
        if series * steps > self.values_max:
            raise EvaluationError(
                f"query processing would load too many samples into memory in query execution: {series} series at "
                f"{steps} steps; the limit is {self.values_max} values, ask for fewer series or a larger step",
                reason="too_many_samples",
            )
        self.in_hand.admit(VALUE_BYTES * series * steps)
