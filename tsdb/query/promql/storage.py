"""Storage of PromQL over a querier: the reads of Reader.Select, decoded into arrays in this process.

Samples in memory come as columns and are decoded on all cores. Partitions that need history come as samples.
Exactness, limits and refusals are those of Select.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tsdb.client.answer.frames import AnswerFrames, FramedAnswer
from tsdb.client.options import ReadOptions, wire_matchers
from tsdb.model.selector import Matcher
from tsdb.model.window import TIME_MAX_MS
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.query.join.pieces import AnswerTotals
from tsdb.query.promql.arrays import SAMPLE_BYTES, Partitions
from tsdb.query.promql.losses import losses
from tsdb.query.select import SelectRead
from tsdb.query.sources import Sources, partitions_for
from tsdb.query.stores.fan_out import ShareStreams
from tsdb.reader.frames import FRAME_BYTES_MAX
from tsdb.reader.limits import SelectLimits
from tsdb.reader.read_call import ReadCall
from tsdb.reader.request import select_spec
from tsdb.v1 import reader_pb2

SERIES_BYTES = 64  # Bytes beside the labels: their object, its entry in a list, and a start.

NO_SERIES = StoredSeries((), np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))


class QuerierStorage:
    """Implements Storage of tsdb.promql. Used by one query, on one thread.

    limits: bounds of each selection. call: the call of the whole query; it bounds the time of all selections and their
    memory, which counts until the call ends. options: deviations from an exact and fresh answer that the query accepts;
    the warnings of a selection then name each loss. Equal selections are read once.


    """

    def __init__(
        self, sources: Sources, limits: SelectLimits, call: ReadCall, options: ReadOptions = ReadOptions()
    ) -> None:
        self._sources = sources
        self._limits = limits
        self._call = call
        self._options = options.to_wire()
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

    def _read(self, matchers: Sequence[Matcher], start_ms: int, last_ms: int) -> StoredSeries:
        end_ms = last_ms + 1  # Ranges of PromQL include both ends.
        request = reader_pb2.SelectRequest(
            matchers=wire_matchers(matchers),
            start_ms=start_ms,
            end_ms=end_ms,
            encoding=reader_pb2.COLUMNS,
            options=self._options,
        )
        read = SelectRead(self._sources, request, select_spec(request), self._limits, self._call)
        wanted = partitions_for(self._sources, self._options)
        opened = read.open(wanted, keeps=True)
        answers = self._answers(opened.alone, opened.totals)
        partitions = Partitions(
            [part for answer in answers for part in answer.parts],
            [joined for of_store in opened.joined for joined in of_store],
        )
        partitions.check(wanted)
        stored = partitions.stored(start_ms, end_ms, self._call.hold)
        states = [*opened.joined_states, *(state for answer in answers for state in answer.states)]
        found = losses(opened.warnings, states, start_ms, end_ms, allow_holes=self._options.allow_holes)
        return replace(stored, warnings=found)

    def _answers(
        self, opened: Sequence[ShareStreams[reader_pb2.SelectResponse]], totals: AnswerTotals
    ) -> list[FramedAnswer]:
        """The whole answers of stores, not decoded."""
        answers = []
        for one in opened:
            frames = AnswerFrames()
            for message in one.messages():
                self._call.check_going()
                # About the size of a message. protobuf would have to encode it again for the exact size.
                self._call.keep(self._call.kept_bytes + FRAME_BYTES_MAX)
                frames.add(message)
            answer = frames.finish()
            totals.add(answer.trailer.series, answer.trailer.samples, answer.trailer.bytes)
            answers.append(answer)
        return answers


def _bytes(stored: StoredSeries) -> int:
    return SAMPLE_BYTES * len(stored.ts_ms) + SERIES_BYTES * len(stored.labels) + sum(map(len, stored.labels))
