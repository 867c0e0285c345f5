"""History index: finds the series of history, by the same rules as series in memory.

Read by (index epoch, metric name), and cached while valid (tsdb.query.history.parts). Thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.history.interface import HistoryReads, Loaded
from tsdb.index.matching import Condition, conditions_of
from tsdb.index.pair_search import CheckGoing, go_on
from tsdb.model.errors import Overloaded
from tsdb.model.labels import METRIC_NAME
from tsdb.model.resolution import underived
from tsdb.model.selector import Matcher
from tsdb.model.window import EPOCH_MS
from tsdb.ops.metrics import counter
from tsdb.ops.threads import waiting_for_others
from tsdb.query.history.parts import SERIES_KEPT_MAX, EpochNames, HistoryParts, HistoryVersion, IndexPart, Needs

EPOCHS_MAX = 1_000  # 80 years. A longer range is a mistake, and would cost thousands of reads of history.
READERS = 16  # A selector over all metrics reads each of them; one after another would take seconds.

reads_total = counter(
    "tsdb_query_past_index_reads_total", "Reads of the series of one (epoch, metric name) from history."
)
Generation = Callable[[], int | None]
"""Returns the current generation of history's index; None: not known, and no cached part is valid."""


@dataclass(frozen=True, slots=True)
class HistorySeries:
    """Series of one partition that may have samples in a range.

    series_ids: uint64 (s,), ascending. labels: canonical, one per series. pack_ids: ascending, of all series together.
    All their samples lie in [start_ms, end_ms), the epochs in which they were announced. These bounds save reads,
    because history is read by month, even where it has no samples.
    """

    series_ids: NDArray[np.uint64]
    labels: list[bytes]
    pack_ids: list[int]
    start_ms: int
    end_ms: int


NO_SERIES = HistorySeries(np.empty(0, np.uint64), [], [], 0, 0)


@dataclass(frozen=True, slots=True)
class Choice:
    """Selects series that satisfy all matchers, or series with these ids (uint64). Without matchers every series is
    selected.

    names: the metric names that they can have; None: any. derived: True uses the matchers unchanged; otherwise derived
    series (tsdb.model.resolution) are skipped unless a matcher names their label.

    """

    matchers: tuple[Matcher, ...]
    series_ids: NDArray[np.uint64] | None = None
    names: frozenset[bytes] | None = None
    derived: bool = False

    def names_of(self, names: Iterable[bytes], check_going: CheckGoing = go_on) -> list[bytes]:
        """The metric names of `names` that a selected series can have. check_going: called for each name."""
        conditions = conditions_of(self.matchers) if self.matchers else ()
        on_name = [condition for condition in conditions if condition.name == METRIC_NAME]
        for condition in on_name:
            if condition.is_look_up and condition.keep:
                names = [name for name in names if condition.pattern.matches(name)]
        found = []
        for name in names:
            if on_name:
                check_going()
            if (self.names is None or name in self.names) and all(_holds(condition, name) for condition in on_name):
                found.append(name)
        return found


@dataclass(frozen=True, slots=True)
class _Found:
    epoch: int
    part: IndexPart
    refs: NDArray[np.uint32]


class HistoryIndex:
    """The series index of one history. generation: constant for a history without imports."""

    def __init__(
        self,
        history: HistoryReads,
        generation: Generation = lambda: 0,
        *,
        series_kept_max: int = SERIES_KEPT_MAX,
    ) -> None:
        self._history = history
        self._generation = generation
        self._parts = HistoryParts(series_kept_max)
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="history-index")

    def find(
        self,
        choice: Choice,
        start_ms: int,
        end_ms: int,
        loaded: Mapping[int, Loaded],
        needs: Needs,
        check_going: CheckGoing = go_on,
    ) -> dict[int, HistorySeries]:
        """The selected series that were announced for a sample time in [start_ms, end_ms), for each partition of
        `needs`.

        loaded: history's loaded positions, read before this call. check_going: called between pieces of work; it may
        raise. Raises Overloaded (epochs_limit) and the errors of history.

        """
        epochs, now = _epochs(start_ms, end_ms), HistoryVersion(loaded, self._generation())
        found: dict[int, list[_Found]] = {partition: [] for partition in needs}
        for epoch in epochs:
            check_going()
            for part in self._parts_of(epoch, choice, now, needs, check_going):
                check_going()
                refs = _chosen(part, choice, check_going)
                refs = refs[_touching(part.index.series_ids_of(refs), epoch, start_ms, end_ms)]
                partitions = part.partition[refs]
                for partition in needs:
                    mine = refs[partitions == partition]
                    if len(mine):
                        found[partition].append(_Found(epoch, part, mine))
        return {partition: _union(parts) for partition, parts in found.items()}

    def _parts_of(
        self, epoch: int, choice: Choice, now: HistoryVersion, needs: Needs, check_going: CheckGoing
    ) -> list[IndexPart]:
        """The parts of every metric name that can be selected; parts that are not cached are read concurrently."""
        names = choice.names_of(self._names_of(epoch, now, needs), check_going)
        kept = {name: self._parts.part(epoch, name, now, needs) for name in names}
        missing = [name for name, part in kept.items() if part is None]
        fresh = dict(zip(missing, self._read_all(epoch, missing, now, check_going), strict=True))
        return [part if part is not None else fresh[name] for name, part in kept.items()]

    def _read_all(
        self, epoch: int, names: Sequence[bytes], now: HistoryVersion, check_going: CheckGoing
    ) -> Iterator[IndexPart]:
        if len(names) == 1:
            yield self._read(epoch, names[0], now)
            return
        # A caller that leaves in the middle of thousands of names must not leave their reads behind.
        reads = [self._readers.submit(self._read, epoch, name, now) for name in names]
        try:
            for read in reads:
                with waiting_for_others():
                    part = read.result()
                yield part
                check_going()
        finally:
            for read in reads:
                read.cancel()

    def _names_of(self, epoch: int, now: HistoryVersion, needs: Needs) -> list[bytes]:
        names = self._parts.names(epoch, now, needs)
        if names is None:
            names = self._history.metric_names(epoch)
            self._parts.keep_names(epoch, EpochNames(now, names))
        return names

    def _read(self, epoch: int, name: bytes, now: HistoryVersion) -> IndexPart:
        reads_total.inc()
        part = IndexPart.of(self._history.series(epoch, name), now)
        self._parts.keep_part(epoch, name, part)
        return part


def _epochs(start_ms: int, end_ms: int) -> range:
    """Index epochs of any series with a sample time in [start_ms, end_ms). The epochs of each series have a phase, so
    one epoch more is included."""
    epochs = range(start_ms // EPOCH_MS, (end_ms - 1 + EPOCH_MS - 1) // EPOCH_MS + 1)
    if len(epochs) > EPOCHS_MAX:
        raise Overloaded(
            f"range [{start_ms}, {end_ms}) touches {len(epochs)} index epochs of history; limit is {EPOCHS_MAX}:"
            " ask for a shorter range",
            reason="epochs_limit",
            limit=EPOCHS_MAX,
            asked=len(epochs),
        )
    return epochs


def _touching(series_ids: NDArray[np.uint64], epoch: int, start_ms: int, end_ms: int) -> NDArray[np.bool_]:
    """(n,): whether this epoch of each series overlaps [start_ms, end_ms)."""
    starts = epoch * EPOCH_MS - (series_ids % np.uint64(EPOCH_MS)).astype(np.int64)
    touching: NDArray[np.bool_] = (starts < end_ms) & (starts + EPOCH_MS > start_ms)
    return touching


def _chosen(part: IndexPart, choice: Choice, check_going: CheckGoing) -> NDArray[np.uint32]:
    if choice.series_ids is not None:
        return part.index.refs_of(choice.series_ids)
    if choice.derived and not choice.matchers:
        return part.index.all_refs()
    return part.index.select(choice.matchers if choice.derived else underived(choice.matchers), check_going)


def _holds(condition: Condition, name: bytes) -> bool:
    """Whether a metric name satisfies a matcher on it."""
    return (condition.pattern.matches(name) == condition.wanted) == condition.keep


def _union(found: Sequence[_Found]) -> HistorySeries:
    if not found:
        return NO_SERIES
    ids = np.concatenate([one.part.index.series_ids_of(one.refs) for one in found])
    labels = [canonical for one in found for canonical in _labels(one)]
    packs = np.unique(np.concatenate([one.part.pack_id[one.refs] for one in found]))
    series_ids, first = np.unique(ids, return_index=True)
    epochs = [one.epoch for one in found]
    # The phase of a series moves its epochs back by less than one epoch.
    start_ms, end_ms = (min(epochs) - 1) * EPOCH_MS, (max(epochs) + 1) * EPOCH_MS
    return HistorySeries(series_ids, [labels[at] for at in first.tolist()], packs.tolist(), start_ms, end_ms)


def _labels(found: _Found) -> list[bytes]:
    joined, lengths = found.part.index.labels_of(found.refs)
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    return [bytes(joined[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)]
