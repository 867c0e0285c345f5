"""Shape: a request whose arrays do not fit each other or the limits is refused with the actual number and the limit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ingest.limits import IngestLimits
from ingest.rows import make_rows
from ingest.validate import check_shape
from support.servers.gateways import Bench, label_set
from tsdb.model.details import SampleDetails
from tsdb.model.errors import ConfigMismatch, InvalidRequest
from tsdb.model.histograms import HistogramShape, no_histograms
from tsdb.ops.lifecycle import Deadline


@pytest.mark.parametrize(
    ("labels", "counts", "samples", "values", "reason", "text"),
    [
        (0, None, 0, 0, "empty_request", "no series"),
        (0, None, 3, 3, "empty_request", "no series"),
        (2, None, 3, 3, "malformed_request", "2 series claim 2 samples, but there are 3 timestamps and 3 values"),
        (2, None, 2, 1, "malformed_request", "2 timestamps and 1 values"),
        (2, [2**32 - 1, 2**32 - 1], 2, 2, "malformed_request", "claim 8589934590 samples"),
        (5, None, 5, 5, "too_many_series", "5 series; limit is 4"),
        (1, [11], 11, 11, "too_many_samples", "11 samples; limit is 10"),
        (4, [2, 2, 2, 2], 8, 8, "request_too_large", "bytes; limit is 250"),
    ],
)
def test_a_misshapen_request_is_refused(
    labels: int, counts: list[int] | None, samples: int, values: int, reason: str, text: str
) -> None:
    bench = Bench(limits=IngestLimits(series_max=4, samples_max=10, request_bytes_max=250))
    with pytest.raises(InvalidRequest, match=text) as caught:
        bench.write(
            [label_set(number) for number in range(labels)],
            counts=counts,
            ts_ms=[bench.clock.now_ms()] * samples,
            values=[0.0] * values,
        )
    assert caught.value.reason == reason
    assert bench.log.records == []
    assert bench.pipeline.inflight_bytes == 0


def test_every_limit_is_allowed_itself() -> None:
    labels = [label_set(0), label_set(1)]
    size = sum(map(len, labels)) + 3 * 16
    limits = IngestLimits(series_max=2, samples_max=3, request_bytes_max=size)
    rows = make_rows(labels, np.array([2, 1], np.uint32), np.zeros(3, np.int64), np.zeros(3))
    check_shape(rows, limits)
    assert (rows.nbytes, rows.samples, rows.samples_of(0), rows.samples_of(1)) == (size, 3, 2, 1)


def test_arrays_that_are_strided_become_contiguous() -> None:
    ts_ms = np.arange(6, dtype=np.int64)[::2]
    rows = make_rows([b"a"] * 3, None, ts_ms, np.zeros(3))
    assert rows.ts_ms.flags.c_contiguous
    assert rows.ts_ms.tolist() == [0, 2, 4]


def test_an_offset_that_no_protocol_can_send_on_is_refused_by_name() -> None:
    bench, shape = Bench(), HistogramShape(0, positive=((-(2**31) + 1, 1), (2**32 - 4, 1)))
    columns = replace(
        no_histograms(),
        shapes=(shape,),
        shape_of=np.zeros(1, np.int32),
        starts=np.array([0, 2]),
        buckets=np.ones(2),
        counts=np.full(1, 2.0),
        sums=np.ones(1),
        zero_counts=np.zeros(1),
        hints=np.zeros(1, np.uint8),
        is_integer=np.ones(1, np.bool_),
    )
    rows = make_rows([label_set(0), label_set(1)], None, np.full(2, bench.clock.now_ms()), np.ones(2))
    details = SampleDetails(None, columns, np.array([0, -1]))
    result = bench.pipeline.write(replace(rows, details=details), True, Deadline.after(1))
    assert (result.samples, result.refused) == (1, {"histogram_span_out_of_range": 1})
    assert "beyond 32 bits" in result.offenders[0].message


def test_rows_without_samples_are_ignored() -> None:
    bench = Bench()
    result = bench.write([label_set(0), label_set(1), label_set(2)], counts=[1, 0, 1], ts_ms=[bench.clock.now_ms()] * 2)
    assert (result.samples, result.refused_series) == (2, 0)
    assert {announcement.canonical for announcement in bench.log.announcements()} == {label_set(0), label_set(2)}


def test_rows_that_the_protocol_refuses_are_offenders_and_the_others_are_written() -> None:
    bench = Bench()
    rows = make_rows([label_set(0), b""], np.array([1, 0], np.uint32), np.array([bench.clock.now_ms()]), np.zeros(1))
    bad = replace(rows, errors={1: InvalidRequest("no such thing", reason="labels_malformed")})
    result = bench.pipeline.write(bad, True, Deadline.after(1))
    assert (result.samples, result.refused_series) == (1, 1)
    assert [(o.series_index, o.message) for o in result.offenders] == [(1, "no such thing")]
    with pytest.raises(InvalidRequest, match="series_index 1: no such thing"):
        bench.pipeline.submit(bad, False, Deadline.after(1)).result(60.0)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"series_max": 0}, "series_max is 0; it must be above 0"),
        ({"produce_timeout_s": -1.0}, "produce_timeout_s is -1.0"),
        ({"inflight_bytes_max": 10, "request_bytes_max": 11}, "inflight_bytes_max is 10; it must hold one request"),
        ({"record_bytes_max": 1048577}, "record_bytes_max is 1048577; readers take up to 1048576"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(fields: dict[str, float], text: str) -> None:
    with pytest.raises(ConfigMismatch, match=text):
        IngestLimits(**fields)  # type: ignore[arg-type]  # one of its fields
