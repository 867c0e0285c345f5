"""Native histograms and start timestamps that are kept are in the log as they were sent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ingest.http.protocol import WriteProtocol
from ingest.limits import IngestLimits
from ingest.remote_write.protocol import PATH, remote_write
from support.senders.remote_write import add_histogram, request_2, snappy
from support.senders.write_receiver import HttpReply, WriteServer, write_server
from support.servers.gateways import NOW_MS
from tsdb.codec.records.log_record import decode_records
from tsdb.model.labels import format_series

V2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
WRITTEN = "x-prometheus-remote-write-{}-written"
LATENCY = {"__name__": "lat", "job": "j"}


def keeping(limits: IngestLimits) -> WriteProtocol:
    return remote_write(limits, native_histograms="keep")


def send(server: WriteServer, message: Any) -> HttpReply:
    return server.post(PATH, snappy(message), content_type=V2, content_encoding="snappy")


def stored(server: WriteServer) -> list[tuple[str, int, int, list[float]]]:
    """(series, ts_ms, start_ms, [count, zero count, buckets...] or the float) of each sample, in log order."""
    names = {one.series_id: format_series(one.canonical) for one in server.bench.log.announcements()}
    found = []
    for record in server.bench.log.of("metrics"):
        decoded = decode_records(record.value, np.array([0, len(record.value)], np.int64))
        assert decoded.all_ok
        details = decoded.details
        for at, series in enumerate(decoded.series_id.tolist()):
            start = 0 if details is None or details.start_ms is None else int(details.start_ms[at])
            numbers = [float(decoded.value[at])]
            if details is not None and details.histogram_of is not None and details.histogram_of[at] >= 0:
                one, columns = int(details.histogram_of[at]), details.histograms
                assert columns is not None
                assert columns.sums[one] == decoded.value[at]
                buckets = columns.buckets[columns.starts[one] : columns.starts[one + 1]]
                numbers = [columns.counts[one], columns.zero_counts[one], *buckets]
            found.append((names[series], int(decoded.ts_ms[at]), start, [float(number) for number in numbers]))
    return found


@pytest.fixture
def server() -> Any:
    with write_server(keeping) as running:
        yield running


@pytest.mark.parametrize("floats", [False, True])
def test_a_histogram_is_one_sample_with_its_buckets(server: WriteServer, floats: bool) -> None:
    message = request_2([(LATENCY, [(NOW_MS - 5, 2.0)])])
    add_histogram(message, NOW_MS, floats=floats)
    message.timeseries[0].histograms[0].start_timestamp = NOW_MS - 9
    answer = send(server, message)
    assert (answer.status, answer.headers[WRITTEN.format("samples")], answer.headers[WRITTEN.format("histograms")]) == (
        204, "1", "1",
    )  # fmt: skip
    series = 'lat{job="j"}'
    assert stored(server) == [
        (series, NOW_MS - 5, 0, [2.0]),
        (series, NOW_MS, NOW_MS - 9, [6.0, 1.0, 1.0, 2.0, 1.0, 1.0]),
    ]


def test_a_refused_histogram_is_not_among_the_written_ones(server: WriteServer) -> None:
    message = request_2([({"__name__": name}, [(NOW_MS, 1.0)]) for name in ("good", "wrong", "wide")])
    for series, count in zip(message.timeseries, (0, 7, 9_000), strict=True):
        series.histograms.add(timestamp=NOW_MS + 1, count_int=count)
    wide = message.timeseries[2].histograms[0]
    wide.positive_spans.add(length=9_000)
    wide.positive_deltas.extend([1] + [0] * 8_999)
    answer = send(server, message)
    assert answer.status == 400
    assert "histogram_count_mismatch" in answer.text
    assert "9000 buckets, spans or bounds; the limit is 8192" in answer.text
    assert (answer.headers[WRITTEN.format("samples")], answer.headers[WRITTEN.format("histograms")]) == ("1", "1")
    assert [(name, ts_ms) for name, ts_ms, _, _ in stored(server)] == [("good", NOW_MS), ("good", NOW_MS + 1)]


def test_histograms_that_no_record_holds_together_are_in_several(server: WriteServer) -> None:
    message = request_2([({"__name__": "h", "n": str(number)}, []) for number in range(400)])
    dice = np.random.default_rng(4)
    expected = {}
    for number, series in enumerate(message.timeseries):
        counts = dice.random(600)
        one = series.histograms.add(timestamp=NOW_MS, count_float=counts.sum(), sum=1.0)
        one.positive_spans.add(length=600)
        one.positive_counts.extend(counts)
        expected[f'h{{n="{number}"}}'] = [one.count_float, 0.0, *counts.tolist()]
    assert send(server, message).status == 204
    assert len(server.bench.log.of("metrics")) > len({record.partition for record in server.bench.log.of("metrics")})
    assert {name: numbers for name, _, _, numbers in stored(server)} == expected


def test_start_timestamps_of_floats_are_kept(server: WriteServer) -> None:
    message = request_2([({"__name__": "a"}, [(NOW_MS, 1.0)]), ({"__name__": "b"}, [(NOW_MS, 2.0)])])
    message.timeseries[1].samples[0].start_timestamp = NOW_MS - 60_000
    assert send(server, message).status == 204
    assert sorted(stored(server)) == [("a", NOW_MS, 0, [1.0]), ("b", NOW_MS, NOW_MS - 60_000, [2.0])]
