"""Ingest.Write keeps histograms and start timestamps on the log, and refuses bad ones by name."""

from __future__ import annotations

from typing import Any

import grpc
import numpy as np
import pytest

from ingest.native import NativeHistogramRule
from support.counters import sample
from support.data.detail_cases import histograms
from support.fakes.grpc_echo import call_raw
from support.servers.gateway_server import WRITE, call, gateway_server, ingest_stub, write_request
from support.servers.gateways import NOW_MS, Bench, label_set
from tsdb.model.details import SampleDetails, same_details
from tsdb.model.errors import InvalidRequest
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.v1 import common_pb2, ingest_pb2
from tsdb.wire.histograms import encode_histograms

COLUMNS = histograms([0, 2, 1], 1)
OF = np.array([0, -1, 1, 2])
VALUES = [float(value) for value in (COLUMNS.sums[0], 7.5, COLUMNS.sums[1], COLUMNS.sums[2])]
STARTS = np.array([0, NOW_MS - 9, NOW_MS - 5, 0])


def request(**changes: Any) -> ingest_pb2.WriteRequest:
    """Series 0 has one sample, a histogram; series 1 has a number and two histograms."""
    fields = {
        "sample_counts": np.array([1, 3], "<u4").tobytes(),
        "start_ms": STARTS.astype("<i8").tobytes(),
        "histograms": encode_histograms(COLUMNS, OF),
    }
    times = [NOW_MS - 4, NOW_MS - 3, NOW_MS - 2, NOW_MS - 1]
    return write_request([label_set(0), label_set(1)], times, VALUES, **(fields | changes))


def sent(
    message: ingest_pb2.WriteRequest, bench: Bench, rule: NativeHistogramRule = "keep"
) -> ingest_pb2.WriteResponse:
    with gateway_server(bench.pipeline, rule) as server, ingest_stub(server.port) as stub:
        return call(stub, message)


def broken(**changes: bytes) -> common_pb2.Histograms:
    found = encode_histograms(COLUMNS, OF)
    for field, data in changes.items():
        setattr(found, field, data)
    return found


def test_the_log_has_what_was_sent() -> None:
    bench = Bench()
    before = sample("tsdb_ingest_native_histograms_total")
    assert sent(request(), bench).samples == 4
    assert sample("tsdb_ingest_native_histograms_total") - before == 3
    decoded = bench.log.decoded()
    order = np.argsort(decoded.ts_ms)
    assert decoded.details is not None
    assert same_details(decoded.details.take(order), SampleDetails(STARTS, COLUMNS, OF))
    assert (decoded.value[order].view(np.int64) == np.array(VALUES).view(np.int64)).all()


@pytest.mark.parametrize("rule", ["classic", "refuse"])
def test_a_gateway_that_does_not_keep_them_refuses_them_by_name(rule: NativeHistogramRule) -> None:
    bench = Bench()
    with pytest.raises(InvalidRequest, match="native_histograms = keep") as refused:
        sent(request(), bench, rule)
    assert refused.value.reason == "native_histogram"
    plain = write_request([label_set(2)], [NOW_MS], start_ms=np.array([NOW_MS - 5], "<i8").tobytes())
    assert sent(plain, bench, rule).samples == 1
    assert bench.log.decoded().details is None


def test_a_bad_histogram_refuses_its_series_alone() -> None:
    counts = COLUMNS.counts.copy()
    counts[2] += 1.0
    message = request(histograms=broken(counts=counts.tobytes()), partial=True)
    answer = sent(message, Bench())
    assert (answer.samples, answer.refused_samples) == (1, 3)
    assert [(one.series_index, one.reason) for one in answer.offenders] == [(1, "histogram_count_mismatch")]
    message.partial = False
    with pytest.raises(InvalidRequest) as refused:
        sent(message, Bench())
    assert refused.value.reason == "histogram_count_mismatch"


@pytest.mark.parametrize(
    "changes",
    [
        {"start_ms": bytes(8)},
        {"start_ms": bytes(31)},
        {"histograms": broken(buckets=b"")},
        {"histograms": broken(samples=np.array([0, 2, 4], "<u4").tobytes())},
        {"histograms": broken(schemas=bytes(16))},
    ],
)
def test_parts_that_do_not_fit_together_refuse_the_request(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        sent(request(**changes), Bench())
    assert refused.value.reason == "malformed_request"


def test_bytes_that_are_no_message_of_histograms_refuse_the_request() -> None:
    data = request(histograms=None).SerializeToString() + b"\x62\x02\x0a\x05"
    with (
        gateway_server(Bench().pipeline) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
        pytest.raises(grpc.RpcError) as raised,
    ):
        call_raw(channel, WRITE, data)
    assert from_rpc_error(raised.value).reason == "malformed_request"
