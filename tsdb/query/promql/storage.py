"""Storage of PromQL over a querier: the answers of selects, joined and decoded in this process.

Samples in memory come as columns and are decoded on all cores. Partitions that need history come as samples.
Exactness, limits and refusals are those of Select.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tsdb.answer.answer import Answer, PartitionAnswer, joined_parts, malformed
from tsdb.answer.columns import joined_body, joined_series
from tsdb.answer.spec import EXACT, ReadOptions, SelectSpec
from tsdb.answer.state import MemoryState, losses
from tsdb.model.selector import Matcher
from tsdb.model.window import TIME_MAX_MS
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.query.join.joined_read import AnswerTotals
from tsdb.query.select import SelectRead
from tsdb.query.sources import Sources, partitions_for
from tsdb.query.stores.fan_out import ShareStreams
from tsdb.reader.read_call import ReadCall, SelectLimits

SAMPLE_BYTES = 16
SERIES_BYTES = 64  # Bytes beside the labels: the object of the labels, its entry in a list, and a start.

NO_SERIES = StoredSeries((), np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))


class QuerierStorage:
    """Implements Storage of tsdb.promql. Used by one query, on one thread.

    limits: bounds of each selection. call: the call of the whole query; it bounds the time of all selections and their
    memory, which counts until the call ends. options: deviations from an exact and fresh answer that the query accepts;
    the warnings of a selection then name each loss. Equal selections are read once.

    """

    def __init__(self, sources: Sources, limits: SelectLimits, call: ReadCall, options: ReadOptions = EXACT) -> None:
        self._sources = sources
        self._limits = limits
        self._call = call
        self._options = options
        self._found: dict[tuple[tuple[Matcher, ...], int, int], StoredSeries] = {}

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        """Implements Storage.select. Series come by partition and series id. Equal selections share their arrays.

        Raises the errors of Reader.Select of a querier: Unavailable, OutOfCoverage, HoleInRange, CorruptData,
        Overloaded, InvalidRequest.

        """
        # No sample lies beyond these times, and Select refuses ranges that do.
        start_ms, end_ms = max(start_ms, -TIME_MAX_MS), min(end_ms, TIME_MAX_MS - 1)
        if start_ms > end_ms:
            return NO_SERIES
        key = tuple(matchers), start_ms, end_ms
        found = self._found.get(key)
        if found is None:
            kept_bytes = self._call.kept_bytes
            found = self._found[key] = self._read(*key)
            self._call.keep(kept_bytes + _bytes(found))
        return found

    def _read(self, matchers: tuple[Matcher, ...], start_ms: int, last_ms: int) -> StoredSeries:
        end_ms, limits = last_ms + 1, self._limits  # Ranges of PromQL include both ends.
        spec = SelectSpec(
            matchers,
            None,
            start_ms,
            end_ms,
            columns=True,
            options=self._options,
            series_max=limits.series_max,
            samples_max=limits.samples_max,
            bytes_max=limits.bytes_max,
        )
        spec.check()
        answer = self._sources.select(spec, self._call)
        if answer is None:
            parts, warnings, states = self._read_sources(spec)
            found = joined_series(parts, start_ms, end_ms, self._call.hold)
        else:
            self._call.keep(self._call.kept_bytes + answer.body.nbytes)
            warnings, states = answer.warnings, answer.states or ()
            found = joined_body(answer.body, start_ms, end_ms, self._call.hold)
        if warnings or self._options.allow_holes:
            warnings = losses(warnings, states, start_ms, end_ms, allow_holes=self._options.allow_holes)
        return StoredSeries(found.canonical, found.starts, found.ts_ms, found.values, tuple(warnings))

    def _read_sources(self, spec: SelectSpec) -> tuple[Sequence[PartitionAnswer], Sequence[str], Sequence[MemoryState]]:
        """The parts by partition, warnings and states of an answer of several stores and history."""
        wanted = partitions_for(self._sources, self._options)
        opened = SelectRead(self._sources, spec, self._limits, self._call).open(wanted, keeps=True)
        parts: list[PartitionAnswer] = []
        for one in opened.alone:
            parts += joined_parts(self._kept(one, opened.totals))
        for of_store in opened.joined:
            parts += of_store
        return _ordered(parts, wanted), opened.warnings, opened.states

    def _kept(self, opened: ShareStreams[Answer], totals: AnswerTotals) -> Iterator[Answer]:
        """The answers of a store. All of them stay in memory, not decoded, until the selection is joined."""
        for answer in opened.messages():
            self._call.check_going()
            self._call.keep(self._call.kept_bytes + answer.body.nbytes)
            if answer.body.counts is not None:
                totals.add(answer.body.counts)
            yield answer


def _ordered(parts: list[PartitionAnswer], wanted: Sequence[int]) -> list[PartitionAnswer]:
    """The parts by partition. Raises CorruptData (answer_malformed) unless exactly the partitions `wanted` came, each
    once."""
    came = [part.partition for part in parts]
    if came == wanted:
        return parts
    if sorted(came) != wanted:
        raise malformed(f"partitions {sorted(came)} came; partitions {wanted} were requested")
    return sorted(parts, key=lambda part: part.partition)


def _bytes(stored: StoredSeries) -> int:
    return SAMPLE_BYTES * len(stored.ts_ms) + SERIES_BYTES * len(stored.labels) + sum(map(len, stored.labels))
