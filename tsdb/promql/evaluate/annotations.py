"""Annotations: collects warnings and infos of a query, each with its position in the text, in the words of
Prometheus."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from tsdb.promql.syntax.numbers import shown_g
from tsdb.selector.tokens import TextSpan, place


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
