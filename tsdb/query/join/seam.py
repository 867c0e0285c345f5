"""Seam: merges memory and history into the answer of one partition, which equals that of a complete source. Pure.

Memory and history overlap: samples in memory below coverage are late samples, or samples that history has already too.
The higher order of a sample wins. Above coverage memory is complete and history is not used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import PartitionAnswer, RawResult, malformed, raw_of
from tsdb.codec.chunk.chunk import Fragment
from tsdb.history.merge import merge
from tsdb.model.details import SampleDetails
from tsdb.model.errors import CorruptData
from tsdb.query.history.stretch import narrow_fragment
from tsdb.query.reduction import Reduction, packless_fragment

NO_ORDER = -1  # Order of a sample above coverage.
_Scalar = TypeVar("_Scalar", bound=np.generic)

_ABOVE_COVERAGE = np.iinfo(np.int64).max  # Order of samples above coverage: memory always wins there.


@dataclass(frozen=True, slots=True)
class StoreSamples:
    """The answer of a store about one partition: samples of s series, n in all.

    series_ids: uint64 (s,), ascending. labels: canonical, one per series. counts: int64 (s,). ts_ms: int64 (n,),
    ascending within a series. values: float64 (n,). orders: int64 (n,), a sample's offset below coverage, -1 above.
    details: start timestamps and histograms of the samples, None where they have none.
    """

    series_ids: NDArray[np.uint64]
    labels: list[bytes]
    counts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    orders: NDArray[np.int64]
    details: SampleDetails | None = None

    @classmethod
    def of(cls, part: PartitionAnswer) -> StoreSamples:
        """The samples of a whole partition. Raises CorruptData (answer_malformed)."""
        if part.series is None or part.columns or part.overlay:
            raise malformed(f"partition {part.partition} came without series, or not as samples")
        raw = raw_of(part.raw, len(part.series))
        orders = np.full(raw.samples, NO_ORDER, np.int64) if raw.orders is None else raw.orders
        return cls(
            part.series.series_ids,
            part.series.canonical(),
            raw.counts.astype(np.int64),
            _writable(raw.ts_ms),
            _writable(raw.values),
            _writable(orders),
            raw.details,
        )

    def since(self, start_ms: int) -> StoreSamples:
        """The samples from start_ms on; series without samples stay."""
        keep = self.ts_ms >= start_ms
        series = np.repeat(np.arange(len(self.counts)), self.counts)[keep]
        counts = np.bincount(series, minlength=len(self.counts)).astype(np.int64)
        columns = self.ts_ms[keep], self.values[keep], self.orders[keep]
        details = self.details and self.details.take(np.flatnonzero(keep))
        return StoreSamples(self.series_ids, self.labels, counts, *columns, details)


NO_SAMPLES = StoreSamples(
    np.empty(0, np.uint64),
    [],
    np.empty(0, np.int64),
    np.empty(0, np.int64),
    np.empty(0, np.float64),
    np.empty(0, np.int64),
)


def _writable(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """Kernels are compiled once, for arrays that can be written; those of a message cannot."""
    return array if array.flags.writeable else array.copy()


class Seam:
    """Joins the history stretches of one partition with its samples in memory.

    Call `add` for each stretch, then `result`. held: all samples of the range that memory has. Not thread-safe.
    """

    def __init__(self, held: StoreSamples, reduction: Reduction) -> None:
        self._held = fragment_of(held)
        self._reduction = reduction
        self._done: list[Fragment] = []
        self._joined: list[NDArray[np.uint64]] = []

    def add(self, history: Fragment) -> int:
        """Merge one stretch of history; no two stretches share a series. Returns the number of remaining samples."""
        self._joined.append(history.series_id)
        mine = self._of(history.series_id)
        return self._keep(history if mine is None else merge([history, mine]))

    def add_steps(self, steps: Fragment) -> int:
        """Add finished steps of history, which lie before all other samples. Returns their number."""
        self._done.append(steps)
        return steps.samples

    def result(self, series_ids: NDArray[np.uint64], steps: StoreSamples) -> RawResult:
        """The joined samples followed by the steps. series_ids: uint64, ascending, all series of both."""
        self._keep_rest()
        later = fragment_of(steps)
        return merged_raw(self._done if later is None else [*self._done, later], series_ids)

    def _of(self, series_ids: NDArray[np.uint64]) -> Fragment | None:
        return None if self._held is None else narrow_fragment(self._held, series_ids)

    def _keep_rest(self) -> None:
        """Keep the samples of series that only memory has."""
        if self._held is None:
            return
        joined = np.concatenate(self._joined) if self._joined else np.empty(0, np.uint64)
        rest = self._of(np.setdiff1d(self._held.series_id, joined))
        self._held = None
        if rest is not None:
            self._keep(rest)

    def _keep(self, fragment: Fragment) -> int:
        reduced = self._reduction.apply(fragment)
        self._done.append(reduced)
        return reduced.samples


def merged_raw(fragments: list[Fragment], series_ids: NDArray[np.uint64]) -> RawResult:
    """Merge fragments into one result over series_ids. Raises CorruptData for a series that is not in series_ids.

    The fragments have no (series, timestamp) in common. They may share a series when all its samples in one fragment
    are later than in the other, as steps after samples are.
    """
    counts = np.zeros(len(series_ids), np.uint32)
    if not fragments:
        return RawResult(counts, np.empty(0, np.int64), np.empty(0, np.float64))
    whole = merge(fragments)
    places = np.searchsorted(series_ids, whole.series_id)
    if not np.array_equal(series_ids[places[places < len(series_ids)]], whole.series_id):
        raise CorruptData("samples of a series that no index knows", reason="unindexed_series")
    counts[places] = np.diff(whole.sample_start)
    return RawResult(counts, whole.ts_ms, whole.value, details=whole.details)


def fragment_of(held: StoreSamples) -> Fragment | None:
    """Samples of memory with orders that compare with those of history; None when there are no samples."""
    if not len(held.ts_ms):
        return None
    orders = np.where(held.orders < 0, _ABOVE_COVERAGE, held.orders)
    found = packless_fragment(held.series_ids, held.counts, held.ts_ms, held.values, orders)
    return found if held.details is None else replace(found, details=held.details)
