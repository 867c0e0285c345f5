"""Downsampled: chooses the part of a query with steps that derived series answer, and converts their samples to steps.

Only for queries that request `downsampled`. A step of `sum` is then a sum of sums, so its last bits may differ from the
sum of the samples. Late data shows after the next run of the downsampling job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.spec import SelectSpec
from tsdb.codec.chunk.chunk import Fragment
from tsdb.head.read import step_kernels as steps
from tsdb.log.downsampled import Downsampled
from tsdb.model.arrays import csr_places
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable
from tsdb.model.labels import series_id
from tsdb.model.resolution import AGGREGATE, COUNT, LAST, MAX, MIN, RESOLUTION, RESOLUTIONS_MS, SUM, source_labels
from tsdb.model.selector import Matcher, MatchType
from tsdb.ops.metrics import counter
from tsdb.query.history.index import HistorySeries
from tsdb.query.history.stretch import narrow_fragment
from tsdb.query.log_value import LogValue
from tsdb.query.reduction import Reduction, refuse_histograms

READ_AGAIN_S = 60.0  # The job runs at most once an hour.
FAILED_AGAIN_S = 10.0

# The derived series that each aggregation of a query needs, and the aggregation of their samples in one step.
_NEEDS: Mapping[int, Mapping[str, int]] = {
    steps.LAST: {LAST: steps.LAST},
    steps.AVG: {SUM: steps.SUM, COUNT: steps.SUM},
    steps.MIN: {MIN: steps.MIN},
    steps.MAX: {MAX: steps.MAX},
    steps.SUM: {SUM: steps.SUM},
    steps.COUNT: {COUNT: steps.SUM},
}

downsampled_total = counter(
    "tsdb_query_downsampled_partitions_total",
    "Partitions in Select answers with some steps from derived series, by resolution.",
    label="resolution",
    values=tuple(RESOLUTIONS_MS),
)


@dataclass(frozen=True, slots=True)
class DerivedPart:
    """Steps before end_ms come from series of this resolution."""

    resolution: str
    end_ms: int

    def before(self, seam_ms: int, query: SelectSpec) -> DerivedPart | None:
        """The part before a seam, in whole steps; None when it is empty."""
        end_ms = _whole_steps(query, min(self.end_ms, seam_ms))
        return DerivedPart(self.resolution, end_ms) if end_ms > query.start_ms else None

    def matchers(self, query: SelectSpec) -> tuple[Matcher, ...]:
        """Matchers of the derived series that the query needs, and of `last`, which every step has."""
        needed = "|".join({*_NEEDS[query.aggregation], LAST})
        return (
            *query.matchers,
            Matcher(MatchType.EQUAL, RESOLUTION, self.resolution),
            Matcher(MatchType.REGEX, AGGREGATE, needed),
        )


class Resolutions:
    """The downsampled spans by resolution. Read from the log when a query needs them, at most once a minute.
    Thread-safe."""

    def __init__(
        self,
        read: Callable[[], Mapping[str, Downsampled]],
        clock: Clock,
        lengths_ms: Mapping[str, int] = MappingProxyType(RESOLUTIONS_MS),
    ) -> None:
        # The coarsest resolution is first.
        self._lengths_ms = sorted(lengths_ms.items(), key=lambda one: -one[1])
        self._value = LogValue("downsampled-spans", read, clock, every_s=READ_AGAIN_S, again_s=FAILED_AGAIN_S)

    def part(self, query: SelectSpec) -> DerivedPart | None:
        """The part at the coarsest resolution that divides the query's steps; None when no resolution does or none has
        samples there."""
        if not query.downsampled:
            return None
        known = self._spans()
        for resolution, length_ms in self._lengths_ms:
            span = known.get(resolution)
            if span is None or query.step_ms % length_ms or query.start_ms % length_ms:
                continue
            end_ms = _whole_steps(query, min(span.end_ms, query.end_ms))
            if span.start_ms <= query.start_ms < end_ms:
                return DerivedPart(resolution, end_ms)
        return None

    def _spans(self) -> Mapping[str, Downsampled]:
        """The spans of the last read. Without the log, or without a span, steps are computed from samples alone, which
        is exact.
        """
        try:
            return self._value.get().value
        except Unavailable:
            return {}


class DerivedSteps:
    """Converts stretches of derived series to steps of their source series, for one partition and query. Not
    thread-safe."""

    def __init__(
        self, part: DerivedPart, query: SelectSpec, derived: HistorySeries, sources: NDArray[np.uint64]
    ) -> None:
        self._query = query
        self._of: dict[str, tuple[NDArray[np.uint64], NDArray[np.uint64]]] = {}
        named = [source_labels(canonical) for canonical in derived.labels]
        source_ids = np.array([series_id(source) for source, _, _ in named], np.uint64)
        # A source series that the index does not have for this range is omitted.
        known = np.isin(source_ids, sources)
        for aggregate in _NEEDS[query.aggregation]:
            mine = known & np.array([found == aggregate for _, _, found in named], np.bool_)
            self._of[aggregate] = derived.series_ids[mine], source_ids[mine]
        # Steps of histograms have no minimum, but each has a last sample, which shows that it is a histogram.
        lasts = known & np.array([found == LAST for _, _, found in named], np.bool_)
        self._lasts = derived.series_ids[lasts]
        downsampled_total.labels(part.resolution).inc()

    @property
    def series_ids(self) -> NDArray[np.uint64]:
        """Derived series to read: uint64, ascending."""
        return np.unique(np.concatenate([self._lasts, *(derived for derived, _ in self._of.values())]))

    def steps(self, stretch: Fragment) -> Iterator[Fragment]:
        """One fragment with the steps of the source series. No fragment when a needed derived series has no samples.
        Raises InvalidRequest (native_histograms) where a step is of histograms."""
        refuse_histograms(stretch)
        parts = [part for part in map(self._reduced, [stretch] * len(self._of), self._of) if part is not None]
        if len(parts) < len(self._of):
            return
        first, *rest = parts
        # An average is sum / count; both were computed from the same samples.
        value = first.value / rest[0].value if rest else first.value
        yield Fragment(
            first.pack_id, first.window_start_ms, first.series_id, first.sample_start, first.ts_ms, value, first.order
        )

    def _reduced(self, stretch: Fragment, aggregate: str) -> Fragment | None:
        derived, sources = self._of[aggregate]
        found = narrow_fragment(stretch, derived)
        if found is None:
            return None
        operation = _NEEDS[self._query.aggregation][aggregate]
        reduced = Reduction(self._query.start_ms, self._query.step_ms, operation).apply(found)
        return _renamed(reduced, sources[np.searchsorted(derived, reduced.series_id)])


def _whole_steps(query: SelectSpec, end_ms: int) -> int:
    """End of the last step that ends at or before end_ms."""
    return query.start_ms + max(0, end_ms - query.start_ms) // query.step_ms * query.step_ms


def _renamed(fragment: Fragment, series_ids: NDArray[np.uint64]) -> Fragment:
    """The same samples under other series ids, sorted by the new ids."""
    by_id = np.argsort(series_ids)
    at, sample_start = csr_places(fragment.sample_start, by_id)
    return Fragment(
        fragment.pack_id,
        fragment.window_start_ms,
        series_ids[by_id],
        sample_start,
        fragment.ts_ms[at],
        fragment.value[at],
        fragment.order[at],
    )
