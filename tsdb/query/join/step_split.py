"""Step split: the steps of a range that a store can aggregate, and the samples that it must give instead."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tsdb.reader.request import SelectSpec
from tsdb.v1 import common_pb2, reader_pb2


@dataclass(frozen=True, slots=True)
class StepSplit:
    """Steps from at_ms on are aggregated by the store: it has all their samples in memory. None: no steps are."""

    at_ms: int | None

    @classmethod
    def of(cls, query: SelectSpec, states: Iterable[common_pb2.PartitionState]) -> StepSplit:
        """The first step of the query that begins at or after the coverage of all states."""
        if not query.step_ms:
            return cls(None)
        coverage_ms = max(state.coverage_start_ms for state in states)
        steps = max(0, -(-(coverage_ms - query.start_ms) // query.step_ms))
        at_ms = query.start_ms + steps * query.step_ms
        return cls(at_ms if query.start_ms < at_ms < query.end_ms else None)

    def requests(self, request: reader_pb2.SelectRequest) -> list[reader_pb2.SelectRequest]:
        """The requests to the store: samples with their orders before the split, and steps from the split on."""
        samples, steps = reader_pb2.SelectRequest(), reader_pb2.SelectRequest()
        samples.CopyFrom(request)
        samples.encoding, samples.partial = reader_pb2.RAW, True
        samples.step_ms, samples.aggregation, samples.downsampled = 0, reader_pb2.NONE, False
        # For series requested by id, history needs their metric names, so labels are requested.
        samples.omit_labels = request.omit_labels and not request.series_ids
        if self.at_ms is None:
            return [samples]
        steps.CopyFrom(request)
        samples.end_ms = steps.start_ms = self.at_ms
        return [samples, steps]
