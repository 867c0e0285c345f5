"""Remote read over HTTP: both forms of answers, and errors as Prometheus's handler has them."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import pairwise

import cramjam
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.api.prometheus_server import NOW_MS, ApiServer, Got, api_server
from support.api.remote_read import (
    CHUNKS,
    SAMPLES,
    STREAM,
    Labels,
    Query,
    body,
    chunks_of,
    frames_of,
    samples_of,
    xor_samples,
)
from support.examples import examples
from tsdb.api.prometheus.errors import failure_of
from tsdb.api.prometheus.remote_read.page import failed
from tsdb.api.prometheus.remote_read.request import QUERIES_MAX, REQUEST_BYTES_MAX
from tsdb.api.prometheus.remote_read.wire import sample_fields
from tsdb.api.prometheus.remote_read.xor_chunk import CHUNK_SAMPLES, xor_chunks
from tsdb.model.errors import CorruptData, HoleInRange, InvalidRequest, Overloaded, TsdbError, Unavailable
from tsdb.ops.auth import Tokens
from tsdb.reader.read_call import AnswerBytes
from tsdb.v1 import remote_read_pb2

STALE_BITS = 0x7FF0000000000002
VALUES = (0.0, -0.0, 1.5, float("inf"), struct.unpack("<d", struct.pack("<q", STALE_BITS))[0], 1 / 3)
POINTS = [(NOW_MS - 15_000 * (299 - at) - at % 7, VALUES[at % len(VALUES)]) for at in range(300)]
BITS = [(at, struct.unpack("<q", struct.pack("<d", value))[0]) for at, value in POINTS]
# Labels in the order of Prometheus, by name and then by value.
SERIES: Sequence[Labels] = (
    (("__name__", "up"), ("a", "x"), ("job", "a")),
    (("__name__", "up"), ("ab", "x")),
    (("__name__", "up"), ("job", "a")),
    (("__name__", "up"), ("job", "aé")),
)
ALL = Query([("__name__", "=", "up")], NOW_MS - 10_000_000, NOW_MS)


@pytest.fixture(scope="module")
def served() -> Iterator[ApiServer]:
    with api_server() as server:
        for labels in reversed(SERIES):
            server.samples.add(dict(labels), POINTS)
        server.samples.add({"__name__": "down"}, [(NOW_MS, 1.0)])
        yield server


@pytest.fixture(autouse=True)
def _restore(served: ApiServer) -> Iterator[None]:
    yield
    served.samples.error, served.samples.warnings = None, ()


def read(served: ApiServer, queries: Sequence[Query], accepted: Sequence[int] = (), url: str = "read") -> Got:
    return served.send("POST", f"/api/v1/{url}", body(queries, accepted), {})


def test_samples_come_bit_for_bit(served: ApiServer) -> None:
    got = read(served, [ALL])
    assert got.status == 200
    assert (got.headers["content-type"], got.headers["content-encoding"]) == ("application/x-protobuf", "snappy")
    (series,) = samples_of(got.body)
    assert list(series) == list(SERIES)
    assert all(points == BITS for points in series.values())


def test_chunks_have_the_same_samples(served: ApiServer) -> None:
    got = read(served, [ALL], [CHUNKS, SAMPLES])
    assert got.status == 200
    assert got.headers["content-type"] == STREAM
    assert "content-encoding" not in got.headers
    assert chunks_of(got.body) == samples_of(read(served, [ALL]).body)
    assert [len(message.chunked_series[0].chunks) for message in frames_of(got.body)] == [3] * len(SERIES)


@pytest.mark.parametrize(
    ("accepted", "content_type"),
    [
        ([], "application/x-protobuf"),
        ([SAMPLES, CHUNKS], "application/x-protobuf"),
        ([CHUNKS, SAMPLES], STREAM),
        ([7, CHUNKS], STREAM),
    ],
)
def test_the_first_known_form_is_chosen(served: ApiServer, accepted: list[int], content_type: str) -> None:
    assert read(served, [ALL], accepted).headers["content-type"] == content_type


@pytest.mark.parametrize("accepted", [SAMPLES, CHUNKS])
def test_each_query_has_its_own_result(served: ApiServer, accepted: int) -> None:
    first, last = BITS[10][0], BITS[20][0]
    queries = [
        Query([("__name__", "=", "nothing")], 0, NOW_MS),
        Query([("__name__", "=~", "u."), ("job", "=", "a"), ("a", "!=", "x")], first, last),
        Query([("__name__", "!=", "up"), ("job", "!~", "a.*")], NOW_MS, NOW_MS),
        Query([], 0, NOW_MS),
        Query([("__name__", "=", "up")], last, first),
    ]
    got = read(served, queries, [accepted])
    found = samples_of(got.body) if accepted == SAMPLES else chunks_of(got.body, len(queries))
    down: Labels = (("__name__", "down"),)
    one = struct.unpack("<q", struct.pack("<d", 1.0))[0]
    assert found == [{}, {SERIES[2]: BITS[10:21]}, {down: [(NOW_MS, one)]}, {}, {}]


def test_no_queries_have_an_empty_answer(served: ApiServer) -> None:
    assert samples_of(read(served, []).body) == []
    assert read(served, [], [CHUNKS]).body == b""


def test_the_url_may_accept_losses(served: ApiServer) -> None:
    served.samples.options.clear()
    served.samples.warnings = ("partition 1 is behind the log",)
    assert read(served, [ALL], url="read?allow_stale=1").status == 200
    (options,) = served.samples.options
    assert (options.allow_stale, options.allow_holes) == (True, False)


@pytest.mark.parametrize(
    ("url", "max_lag_ms"), [("read", 1000), ("read?max_lag=30s", 30_000), ("read?allow_holes=1", 1000)]
)
def test_a_lag_has_no_place_in_the_answer_so_it_is_refused_unless_the_url_accepts_it(
    served: ApiServer, url: str, max_lag_ms: int
) -> None:
    assert read(served, [ALL], url=url).status == 200
    assert served.samples.options[-1].max_lag_ms == max_lag_ms


def test_large_series_span_frames(served: ApiServer) -> None:
    rng = np.random.default_rng(5)
    points = list(zip(range(160_000), rng.standard_normal(160_000).tolist(), strict=True))
    served.samples.add({"__name__": "long"}, points)
    wanted = Query([("__name__", "=", "long")], 0, NOW_MS)
    got = read(served, [wanted], [CHUNKS])
    sizes = [message.ByteSize() for message in frames_of(got.body)]
    assert len(sizes) == 2
    assert max(sizes) < 1.1 * (1 << 20)
    assert chunks_of(got.body) == samples_of(read(served, [wanted]).body)


NESTED = remote_read_pb2.ReadRequest(queries=[remote_read_pb2.Query()] * (QUERIES_MAX + 1)).SerializeToString()


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"", "snappy: corrupt input"),
        (b"\xff" * 20, "snappy: corrupt input"),
        (b"\x05abc", "snappy: corrupt input"),
        (cramjam.snappy.compress_raw(b"\xff\xff\xff"), "the body is no ReadRequest"),
        (cramjam.snappy.compress_raw(b"\0" * (REQUEST_BYTES_MAX + 1)), "the body expands to"),
        (cramjam.snappy.compress_raw(NESTED), "65 queries; the limit is 64"),
        (body([ALL], [7, 8]), "server does not support any of the requested response types: 7, 8; supported: "),
        (
            cramjam.snappy.compress_raw(
                remote_read_pb2.ReadRequest.FromString(b"\x0a\x04\x1a\x02\x08\x09").SerializeToString()
            ),
            "invalid matcher type 9",
        ),
    ],
)
def test_malformed_requests_are_refused(served: ApiServer, raw: bytes, problem: str) -> None:
    got = served.send("POST", "/api/v1/read", bytes(raw), {})
    assert got.status == 400
    assert got.body.decode().startswith(problem)
    assert got.body.endswith(b"\n")
    assert got.headers["content-type"] == "text/plain; charset=utf-8"
    assert got.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidRequest("no such regex", reason="bad_matcher"), 400),
        (Overloaded("too many samples", reason="samples_limit"), 400),
        (HoleInRange("a hole"), 400),
        (Unavailable("it lags", reason="lagging"), 500),
        (Overloaded("no room", reason="answers_bytes"), 500),
        (CorruptData("bits"), 500),
    ],
)
@pytest.mark.parametrize("accepted", [SAMPLES, CHUNKS])
def test_errors_of_reads_are_plain_text(served: ApiServer, error: TsdbError, status: int, accepted: int) -> None:
    served.samples.error = error
    got = read(served, [ALL], [accepted])
    assert (got.status, got.headers["content-type"]) == (status, "text/plain; charset=utf-8")
    assert error.message in got.body.decode()


def test_a_large_answer_is_refused_and_its_memory_released() -> None:
    with api_server(answers=AnswerBytes(8 << 20)) as server:
        server.samples.add({"__name__": "up"}, [(at, 1.0) for at in range(200_000)])
        wanted = Query([("__name__", "=", "up")], 0, NOW_MS)
        got = read(server, [wanted])
        assert (got.status, b"answers_bytes_max" in got.body) == (400, True)
        assert read(server, [wanted], [CHUNKS]).status == 200  # It needs no memory beside its samples.
        server.answers.take("another", 4 << 20, 0, lambda: None)
        server.answers.give_back("another", 4 << 20)


def test_methods_and_tokens_are_checked() -> None:
    with api_server(tokens=Tokens(text="secret")) as server:
        got = server.send("POST", "/api/v1/read", body([ALL]), {})
        assert (got.status, got.headers["content-type"]) == (401, "text/plain; charset=utf-8")
        got = server.send("GET", "/api/v1/read", None, {"authorization": "Bearer secret"})
        assert (got.status, got.headers["allow"]) == (405, "OPTIONS, POST")


def test_a_text_that_is_no_utf8_is_answered(served: ApiServer) -> None:
    request = remote_read_pb2.ReadRequest()
    request.queries.add(end_timestamp_ms=NOW_MS).matchers.add(name=b"__name__", value=b"up\xff")
    got = served.send("POST", "/api/v1/read", bytes(cramjam.snappy.compress_raw(request.SerializeToString())), {})
    assert samples_of(got.body) == [{}]
    assert failed(failure_of(InvalidRequest("\udcff", reason="bad_matcher"))).body == b"?\n"


edges = st.sampled_from([1, 15_000, 15_000 + (1 << 13), 1 << 16, 1 << 19, (1 << 19) + 1, 1 << 40])


@settings(max_examples=examples(200))
@given(
    st.integers(-(1 << 50), 1 << 50),
    st.lists(
        st.tuples(st.one_of(edges, st.integers(1, 1 << 21)), st.integers(-(1 << 63), (1 << 63) - 1)), max_size=260
    ),
)
def test_chunks_decode_to_the_same_bits(first: int, rest: list[tuple[int, int]]) -> None:
    ts_ms = np.cumsum([first, *(delta for delta, _ in rest)]).astype(np.int64)
    bits = np.array([0, *(value for _, value in rest)], np.int64)
    chunks = list(xor_chunks(ts_ms, bits.view(np.float64)))
    decoded = [xor_samples(data) for _, _, data in chunks]
    assert [sample for chunk in decoded for sample in chunk] == list(zip(ts_ms.tolist(), bits.tolist(), strict=True))
    assert [(chunk[0][0], chunk[-1][0]) for chunk in decoded] == [(start, end) for start, end, _ in chunks]
    assert all(len(chunk) == CHUNK_SAMPLES for chunk, _ in pairwise(decoded))


@given(st.lists(st.integers(-(1 << 62), 1 << 62), unique=True, max_size=20).map(sorted))
def test_samples_decode_as_messages(times: list[int]) -> None:
    values = np.arange(len(times)) / 4 - 1
    encoded = sample_fields(np.array(times, np.int64), values).tobytes()
    decoded = remote_read_pb2.TimeSeries.FromString(encoded).samples
    assert [(one.timestamp, one.value) for one in decoded] == list(zip(times, values.tolist(), strict=True))
