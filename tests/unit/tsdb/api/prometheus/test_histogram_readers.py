"""Readers that show numbers alone refuse native histograms by name, and never show their sums as values."""

from __future__ import annotations

from collections.abc import Iterator

import cramjam
import pytest

from support.api.prometheus_server import NOW_MS, ApiServer, api_server
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
def test_arrow_refuses_them(served: ApiServer, query: str) -> None:
    got = served.get("query", {"accept": MEDIA_TYPE}, query=query)
    assert got.status == 422
    assert "native histograms" in got.json["error"]
    assert "histogram_quantile()" in got.json["error"]


@pytest.mark.parametrize("query", ["f", "histogram_count(h)"])
def test_arrow_has_numbers(served: ApiServer, query: str) -> None:
    assert served.get("query", {"accept": MEDIA_TYPE}, query=query).status == 200


def test_federation_leaves_them_out_as_prometheus_does(served: ApiServer) -> None:
    text = served.send("GET", "/federate?match[]={job=%22a%22}", b"", {}).body.decode()
    assert [line.split("{")[0] for line in text.splitlines() if not line.startswith("#")] == ["f"]


@pytest.mark.parametrize("kind", [remote_read_pb2.ReadRequest.SAMPLES, remote_read_pb2.ReadRequest.STREAMED_XOR_CHUNKS])
@pytest.mark.parametrize(("name", "status"), [(b"h", 400), (b"f", 200)])
def test_remote_read_refuses_them(
    served: ApiServer, kind: remote_read_pb2.ReadRequest.ResponseType.ValueType, name: bytes, status: int
) -> None:
    matcher = remote_read_pb2.LabelMatcher(name=b"__name__", value=name)
    query = remote_read_pb2.Query(start_timestamp_ms=0, end_timestamp_ms=NOW_MS, matchers=[matcher])
    message = remote_read_pb2.ReadRequest(queries=[query], accepted_response_types=[kind])
    body = bytes(cramjam.snappy.compress_raw(message.SerializeToString()))
    got = served.send("POST", "/api/v1/read", body, {"content-type": "application/x-protobuf"})
    assert got.status == status
    assert (b"native histograms" in got.body) == (status == 400)
