"""Series over stores and history: finds matching series with their first and last sample times in memory, or group
counts."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from tsdb.answer.answer import AnswerSeries, PackedLabels, SeriesAnswer, malformed
from tsdb.answer.spec import SeriesSpec
from tsdb.answer.state import MemoryState
from tsdb.model.errors import CorruptData
from tsdb.model.labels import parse_labels
from tsdb.query.history.index import NO_SERIES, Choice, HistorySeries
from tsdb.query.join.completeness import AcceptedHoles, history_series
from tsdb.query.sources import Sources, joined_warnings, spec_for, stores_answering
from tsdb.query.stores.fan_out import ShareStreams, open_all
from tsdb.query.stores.routing import NO_START_MS, Routing, Share
from tsdb.reader.read_call import Caller, ReadCall, SelectLimits

JOIN_COPIES = 3
NEVER_FIRST_MS, NEVER_LAST_MS = np.iinfo(np.int64).max, np.iinfo(np.int64).min  # The series has no sample in memory.


class SeriesRead:
    """One read of series. Not thread-safe: it runs on the caller's thread."""

    def __init__(self, sources: Sources, spec: SeriesSpec, limits: SelectLimits, caller: ReadCall) -> None:
        self._sources = sources
        self._spec = replace(spec, series_max=limits.series_max)
        self._limits = limits
        self._caller = caller
        self._bytes = 0
        history = None if sources.history is None else sources.history.store
        allow_holes = spec.options.allow_holes
        self._accepted = AcceptedHoles(history, spec.first_ms, spec.needed_end_ms, allow_holes=allow_holes)

    def answers(self, partitions: Sequence[int]) -> Iterator[SeriesAnswer]:
        """States, then series or groups. Raises as Select."""
        spec, sources = self._spec, self._sources
        # Without a start the answer has everything in memory.
        history = sources.history is not None and spec.start_ms is not None
        start_ms = NO_START_MS if spec.start_ms is None else spec.start_ms
        routing = Routing(sources.stores, sources.topic_id, start_ms, history=history)
        with stores_answering(spec.options, self._caller):
            opened = open_all(routing, partitions, self._start, self._caller, self._accepted.handle_refusal)
        self._accepted.check(state for one in opened for state in one.first[0].states or ())
        if len(opened) == 1 and opened[0].share.alone:
            yield from opened[0].messages()
            return
        yield from self._whole(opened)

    def _start(self, share: Share, caller: Caller) -> Sequence[Iterator[SeriesAnswer]]:
        spec = self._accepted.apply(spec_for(self._spec, share), share)
        if not share.alone:
            # All series are read, because they are joined with history first, and then cut to the range and counted.
            spec = replace(spec, partial=True, group_by=())
        return [share.store.series(spec, caller)]

    def _whole(self, opened: list[ShareStreams[SeriesAnswer]]) -> Iterator[SeriesAnswer]:
        states = {state.partition: state for one in opened for state in one.first[0].states or ()}
        answers = [(one.share, list(self._held(one.rest[0]))) for one in opened]
        joined = {p: states[p] for share, _ in answers if not share.alone for p in share.partitions}
        history = self._history_series(joined)
        states.update(joined)
        blocks, tally = {}, Tally[tuple[str, ...]]()
        for share, parts in answers:
            for part in parts:
                tally.update(part.groups or {})
                block = part.series
                if block is None:
                    continue
                if not share.alone:
                    block = _within(block, self._spec.first_ms, self._spec.needed_end_ms)
                    block = _with_history(block, history.get(block.partition, NO_SERIES))
                    tally.update(_counted(block.canonical(), self._spec.group_by))
                blocks[block.partition] = block
        warnings = joined_warnings([one.first[0].warnings for one in opened])
        yield SeriesAnswer([states[partition] for partition in sorted(states)], warnings)
        if self._spec.group_by:
            yield SeriesAnswer(groups=tally)
            return
        if blocks.keys() != states.keys():
            raise CorruptData(f"series of partitions {sorted(states.keys() - blocks.keys())} did not come")
        self._limits.check_series(sum(map(len, blocks.values())))
        for partition in sorted(blocks):
            yield SeriesAnswer(series=blocks[partition])

    def _held(self, parts: Iterable[SeriesAnswer]) -> Iterator[SeriesAnswer]:
        """Pass parts on and reserve memory for them: they stay until the answer is complete, split and joined."""
        for part in parts:
            self._caller.check_going()
            self._bytes += JOIN_COPIES * part.nbytes
            self._caller.hold(self._bytes)
            yield part

    def _history_series(self, joined: dict[int, MemoryState]) -> dict[int, HistorySeries]:
        """The series of history for these partitions. Adds the holes of history to `joined`."""
        if not joined:
            return {}
        assert self._sources.history is not None, "only a querier with a history joins"
        spec = self._spec
        return history_series(
            self._sources.history,
            joined,
            Choice(spec.matchers),
            spec.first_ms,
            spec.needed_end_ms,
            allow_holes=spec.options.allow_holes,
            check_going=self._caller.check_going,
        )


def _within(series: AnswerSeries, start_ms: int, end_ms: int) -> AnswerSeries:
    """The series that may have samples in memory in [start_ms, end_ms)."""
    if series.first_ms is None or series.last_ms is None:
        raise malformed(f"the series of partition {series.partition} came without their times")
    kept = np.flatnonzero((series.last_ms >= start_ms) & (series.first_ms < end_ms))
    labels = series.canonical()
    return AnswerSeries(
        series.partition,
        series.series_ids[kept],
        PackedLabels.of([labels[index] for index in kept.tolist()]),
        series.first_ms[kept],
        series.last_ms[kept],
    )


def _with_history(series: AnswerSeries, history: HistorySeries) -> AnswerSeries:
    """The series and those of history, whose first and last sample times are not known here."""
    assert series.first_ms is not None, "checked before"
    assert series.last_ms is not None, "checked before"
    fresh = np.flatnonzero(~np.isin(history.series_ids, series.series_ids))
    ids = np.concatenate([series.series_ids, history.series_ids[fresh]])
    labels = series.canonical() + [history.labels[index] for index in fresh.tolist()]
    first = np.concatenate([series.first_ms, np.full(len(fresh), NEVER_FIRST_MS)])
    last = np.concatenate([series.last_ms, np.full(len(fresh), NEVER_LAST_MS)])
    order = np.argsort(ids)
    packed = PackedLabels.of([labels[index] for index in order.tolist()])
    return AnswerSeries(series.partition, ids[order], packed, first[order], last[order])


def _counted(labels: Iterable[bytes], names: Sequence[str]) -> Tally[tuple[str, ...]]:
    tally: Tally[tuple[str, ...]] = Tally()
    for canonical in labels if names else ():
        values = dict(parse_labels(canonical))
        tally[tuple(values.get(name, "") for name in names)] += 1
    return tally
