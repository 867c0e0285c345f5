"""Readers have native histograms as such or refuse them by name, and never show their sums as values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import cramjam
import pyarrow.ipc
import pytest

from support.api.prometheus_server import NOW_MS, ApiServer, Got, api_server
from support.promql.histograms import HistogramStorage
from tsdb.api.prometheus.arrow import MEDIA_TYPE
from tsdb.rules.unit_tests.histograms import HistogramValue
from tsdb.v1 import remote_read_pb2

LABELS = (("__name__", "h"), ("job", "a"))


@pytest.fixture(scope="module")
def served() -> Iterator[ApiServer]:
    with api_server() as server:
        storage = HistogramStorage()
        storage.add_histograms(LABELS, [(NOW_MS - 1000, HistogramValue(0, 4.0, 8.0, positive={1: 4.0}))])
        storage.add((("__name__", "f"), ("job", "a")), [(NOW_MS - 1000, 3.0)])
        server.samples.memory = storage
        yield server


def test_json_has_them(served: ApiServer) -> None:
    (row,) = served.get("query", query="h").data["result"]
    assert row["histogram"][1]["count"] == "4"


@pytest.mark.parametrize("query", ["h", "h[1m]", '{job="a"}'])
def test_arrow_has_them_as_structs(served: ApiServer, query: str) -> None:
    got = served.get("query", {"accept": MEDIA_TYPE}, query=query)
    table = pyarrow.ipc.open_stream(got.body).read_all()
    struct = next(one for one in table["histogram"].to_pylist() if one is not None)
    assert (struct["count"], struct["sum"], struct["positive_counts"]) == (4.0, 8.0, [4.0])
    assert table["value"].is_null().to_pylist() == [one is not None for one in table["histogram"].to_pylist()]


@pytest.mark.parametrize("query", ["f", "histogram_count(h)"])
def test_arrow_has_numbers_without_a_column_of_structs(served: ApiServer, query: str) -> None:
    got = served.get("query", {"accept": MEDIA_TYPE}, query=query)
    assert pyarrow.ipc.open_stream(got.body).read_all().column_names == ["labels", "ts_ms", "value"]


def test_federation_leaves_them_out_as_prometheus_does(served: ApiServer) -> None:
    text = served.send("GET", "/federate?match[]={job=%22a%22}", b"", {}).body.decode()
    assert [line.split("{")[0] for line in text.splitlines() if not line.startswith("#")] == ["f"]


SAMPLES, CHUNKS = remote_read_pb2.ReadRequest.SAMPLES, remote_read_pb2.ReadRequest.STREAMED_XOR_CHUNKS
Kind: TypeAlias = remote_read_pb2.ReadRequest.ResponseType.ValueType


def read(served: ApiServer, matcher: remote_read_pb2.LabelMatcher, kinds: Sequence[Kind]) -> Got:
    query = remote_read_pb2.Query(start_timestamp_ms=0, end_timestamp_ms=NOW_MS, matchers=[matcher])
    message = remote_read_pb2.ReadRequest(queries=[query], accepted_response_types=kinds)
    body = bytes(cramjam.snappy.compress_raw(message.SerializeToString()))
    return served.send("POST", "/api/v1/read", body, {"content-type": "application/x-protobuf"})


@pytest.mark.parametrize("kinds", [[], [SAMPLES], [CHUNKS, SAMPLES]])
def test_remote_read_has_them_as_samples(served: ApiServer, kinds: list[Kind]) -> None:
    got = read(served, remote_read_pb2.LabelMatcher(name=b"job", value=b"a"), kinds)
    assert (got.status, got.headers["content-type"]) == (200, "application/x-protobuf")
    answer = remote_read_pb2.ReadResponse.FromString(bytes(cramjam.snappy.decompress_raw(got.body)))
    of_float, of_histogram = answer.results[0].timeseries
    assert [one.value for one in of_float.samples] == [3.0]
    assert not of_float.histograms
    assert not of_histogram.samples
    (found,) = of_histogram.histograms
    assert (found.timestamp, found.count_float, found.sum) == (NOW_MS - 1000, 4.0, 8.0)
    assert list(found.positive_counts) == [4.0]


@pytest.mark.parametrize(("name", "status"), [(b"h", 400), (b"f", 200)])
def test_remote_read_refuses_them_for_a_caller_that_takes_chunks_alone(
    served: ApiServer, name: bytes, status: int
) -> None:
    got = read(served, remote_read_pb2.LabelMatcher(name=b"__name__", value=name), [CHUNKS])
    assert got.status == status
    assert (b"native histograms" in got.body) == (status == 400)
