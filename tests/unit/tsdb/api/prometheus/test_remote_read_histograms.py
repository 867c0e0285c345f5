"""Native histograms of remote read are messages of Prometheus with the same buckets, counts and times."""

from __future__ import annotations

import numpy as np
import pytest

from support.data.detail_cases import histograms
from tsdb.api.prometheus.remote_read.histograms import histogram_fields, histograms_bytes
from tsdb.v1 import remote_read_pb2


@pytest.mark.parametrize("first_ms", [1_700_000_000_000, -5])
@pytest.mark.parametrize("is_integer", [True, False])
def test_fields_are_read_as_they_were(first_ms: int, is_integer: bool) -> None:
    columns = histograms([0, 2, 1, 4, 3, 0, 0, 2], 1, is_integer=is_integer)
    ts_ms = first_ms + 15_000 * np.arange(len(columns))
    fields, starts = histogram_fields(columns, ts_ms)
    assert len(fields) <= histograms_bytes(columns)
    for row in range(len(columns)):
        (found,) = remote_read_pb2.TimeSeries.FromString(fields[starts[row] : starts[row + 1]].tobytes()).histograms
        shape = columns.shapes[columns.shape_of[row]]
        assert (found.schema, found.zero_threshold) == (shape.schema, shape.zero_threshold)
        for sent, spans in ((found.positive_spans, shape.positive), (found.negative_spans, shape.negative)):
            wide = sum(span.offset + span.length for span in sent)
            assert (wide, sum(span.length for span in sent)) == (
                sum(map(sum, spans)),
                sum(length for _, length in spans),
            )
        assert tuple(found.custom_values) == shape.bounds
        counts = [*found.positive_counts, *found.negative_counts]
        assert counts == columns.buckets[columns.starts[row] : columns.starts[row + 1]].tolist()
        numbers = np.array([found.count_float, found.sum, found.zero_count_float])
        wanted = np.array([columns.counts[row], columns.sums[row], columns.zero_counts[row]])
        assert (numbers.view(np.int64) == wanted.view(np.int64)).all()
        assert (found.reset_hint, found.timestamp) == (columns.hints[row], ts_ms[row])


def test_none_have_no_bytes() -> None:
    fields, starts = histogram_fields(histograms([0], 1).take(np.zeros(0, np.int64)), np.zeros(0, np.int64))
    assert (fields.tolist(), starts.tolist()) == ([], [0])
