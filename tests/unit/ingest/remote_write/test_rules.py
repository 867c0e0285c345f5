"""The rules for receivers of remote write, 1.0 and 2.0, over HTTP: one line a case."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import zstandard

from ingest.http.protocol import WriteProtocol
from ingest.limits import IngestLimits
from ingest.remote_write.protocol import PATH, remote_write
from support.fakes.fake_log import Fault
from support.senders.remote_write import ONE, TWO, Labels, Symbols, add_histogram, request_1, request_2, snappy
from support.senders.write_receiver import HttpReply, WriteServer, write_server
from support.servers.gateways import NOW_MS, Bench
from tsdb.log.interface import METRICS
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.model.family import Family
from tsdb.ops.auth import Tokens

V1 = "application/x-protobuf"
V1_NAMED = "application/x-protobuf;proto=prometheus.WriteRequest"
V2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
LIMITS = IngestLimits(series_max=50, samples_max=100, request_bytes_max=64 << 10)
STALE = 0x7FF0000000000002
OTHER_NAN = 0x7FF8000000000F00
UP = {"__name__": "up", "job": "j", "instance": "i"}
WRITTEN = "x-prometheus-remote-write-{}-written"


def bits(value: float) -> int:
    return int(np.float64(value).view(np.int64))


def number(of: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", of))[0])


@pytest.fixture
def server() -> Iterator[WriteServer]:
    with write_server(remote_write, bench=Bench(limits=LIMITS)) as served:
        yield served


def send(server: WriteServer, message: Any, **headers: str) -> HttpReply:
    """Version and content type by the message."""
    version = V2 if isinstance(message, TWO["Request"]) else V1
    return server.post(PATH, snappy(message), **{"content_type": version, "content_encoding": "snappy", **headers})


def both(series: list[tuple[Labels, list[tuple[int, float]]]]) -> list[Any]:
    return [request_1(series), request_2(series)]


GOOD_1, GOOD_2 = both([(UP, [(NOW_MS, 1.5)])])


@pytest.mark.parametrize(
    ("message", "content_type", "version"),
    [
        (GOOD_1, V1, ""),
        (GOOD_1, V1, "0.1.0"),
        (GOOD_1, V1_NAMED, "0.1.0"),
        (GOOD_1, "Application/X-Protobuf; Proto=prometheus.WriteRequest", "0.1.0"),
        (GOOD_2, V2, "2.0.0"),
        (GOOD_2, V2, ""),
    ],
)
def test_known_content_types_and_versions(server: WriteServer, message: Any, content_type: str, version: str) -> None:
    answer = send(server, message, content_type=content_type, x_prometheus_remote_write_version=version)
    assert (answer.status, answer.text) == (204, "")
    assert server.stored() == {'up{instance="i",job="j"}': {NOW_MS: bits(1.5)}}


@pytest.mark.parametrize(
    "headers",
    [
        {"content_type": "application/json"},
        {"content_type": "application/x-protobuf;proto=io.prometheus.write.v3.Request"},
        {"x_prometheus_remote_write_version": "3.0.0"},
        {"content_encoding": "gzip"},
        {"content_encoding": "br"},
        {"content_encoding": "identity"},
    ],
)
def test_unknown_types_versions_and_encodings_are_415(server: WriteServer, headers: dict[str, str]) -> None:
    answer = send(server, GOOD_1, **headers)
    assert (answer.status, "accepted" in answer.text) == (415, True)
    assert server.stored() == {}


@pytest.mark.parametrize("message", [GOOD_1, GOOD_2])
@pytest.mark.parametrize("without", ["content_type", "content_encoding", "both"])
def test_a_request_without_type_or_encoding_is_snappy_of_version_1(
    server: WriteServer, message: Any, without: str
) -> None:
    is_2 = isinstance(message, TWO["Request"])
    if is_2 and without != "content_encoding":
        return  # Nothing names its version.
    named = {"content_type": V2 if is_2 else V1, "content_encoding": "snappy"}
    headers = {name: value for name, value in named.items() if without not in (name, "both")}
    assert server.post(PATH, snappy(message), **headers).status == 204
    assert server.stored() == {'up{instance="i",job="j"}': {NOW_MS: bits(1.5)}}


def test_a_body_without_type_and_encoding_that_is_no_snappy_is_refused(server: WriteServer) -> None:
    answer = server.post(PATH, GOOD_1.SerializeToString())
    assert (answer.status, "snappy" in answer.text) == (400, True)


def test_zstd_is_accepted(server: WriteServer) -> None:
    body = zstandard.compress(GOOD_1.SerializeToString())
    assert server.post(PATH, body, content_type=V1, content_encoding="zstd").status == 204
    assert len(server.stored()) == 1


@pytest.mark.parametrize(
    "value", [number(STALE), number(OTHER_NAN), float("inf"), float("-inf"), -0.0, 5e-324, 1.7976931348623157e308]
)
@pytest.mark.parametrize("version", [0, 1])
def test_every_float_is_stored_bit_for_bit(server: WriteServer, value: float, version: int) -> None:
    assert send(server, both([(UP, [(NOW_MS, value)])])[version]).status == 204
    assert server.stored() == {'up{instance="i",job="j"}': {NOW_MS: bits(value)}}


@pytest.mark.parametrize(
    ("claim", "labels", "shown"),
    [
        ("unsorted labels", {"job": "j", "__name__": "up", "instance": "i"}, 'up{instance="i",job="j"}'),
        ("an empty value is an absent label", {**UP, "empty": ""}, 'up{instance="i",job="j"}'),
        ("UTF-8 names", {"__name__": "größe.µ", "with space": "日本"}, 'größe.µ{with space="日本"}'),
        ("a replica", {**UP, "__replica__": "a"}, 'up{__replica__="a",instance="i",job="j"}'),
        ("a type", {**UP, "__type__": "gauge"}, 'up{__type__="gauge",instance="i",job="j"}'),
        ("a unit", {**UP, "__unit__": "s"}, 'up{__unit__="s",instance="i",job="j"}'),
        ("an endpoint", {**UP, "__endpoint__": "e"}, 'up{__endpoint__="e",instance="i",job="j"}'),
        ("an address", {**UP, "__address__": "h:1"}, 'up{__address__="h:1",instance="i",job="j"}'),
        ("a tenant", {**UP, "__tenant_id__": "t"}, 'up{__tenant_id__="t",instance="i",job="j"}'),
        ("two underscores", {**UP, "__": "x"}, 'up{__="x",instance="i",job="j"}'),
        ("of discovery", {**UP, "__meta_a_b": "x"}, 'up{__meta_a_b="x",instance="i",job="j"}'),
        ("only a name", {"__name__": "up"}, "up"),
        ("a name that begins with a digit", {"__name__": "1up"}, "1up"),
    ],
)
@pytest.mark.parametrize("version", [0, 1])
def test_labels_as_prometheus_means_them(
    server: WriteServer, claim: str, labels: Labels, shown: str, version: int
) -> None:
    assert send(server, both([(labels, [(NOW_MS, 1.0)])])[version]).status == 204, claim
    assert list(server.stored()) == [shown]


BAD_LABELS: list[tuple[str, Labels, str]] = [
    ("no __name__", {"job": "j"}, "no __name__"),
    ("an empty __name__", {"__name__": "", "job": "j"}, "no __name__"),
    ("an empty label name", [(b"__name__", b"m"), (b"", b"x")], "empty label name"),
    ("no labels", {}, "label set is empty"),
    ("a duplicate name", [(b"__name__", b"m"), (b"a", b"1"), (b"a", b"2")], "twice"),
    ("a name twice", [(b"__name__", b"m"), (b"__name__", b"n")], "twice"),
    ("a name that is not UTF-8", [(b"__name__", b"m"), (b"\xc3\x28", b"1")], "UTF-8"),
    ("a value that is not UTF-8", [(b"__name__", b"m"), (b"a", b"\xed\xa0\x80")], "UTF-8"),
    ("the byte 0xFF", [(b"__name__", b"m"), (b"a", b"b\xffc\xffd")], "UTF-8"),
    ("a reserved name", {"__name__": "m", "__aggr__": "x"}, "reserved"),
    ("a long value", {"__name__": "m", "a": "x" * 3000}, "limit is 2048"),
    ("labels that are too long", {"__name__": "m", **{f"a{n}": "x" * 2000 for n in range(5)}}, "labels_bytes_max"),
    ("too many labels", {"__name__": "m", **{f"a{n}": "x" for n in range(70)}}, "limit is 64"),
]


@pytest.mark.parametrize(("claim", "labels", "text"), BAD_LABELS, ids=[case[0] for case in BAD_LABELS])
@pytest.mark.parametrize("version", [0, 1])
def test_a_bad_series_is_named_and_the_others_are_stored(
    server: WriteServer, claim: str, labels: Labels, text: str, version: int
) -> None:
    answer = send(server, both([(UP, [(NOW_MS, 1.0)]), (labels, [(NOW_MS, 2.0)])])[version])
    assert (answer.status, text in answer.text) == (400, True), answer.text
    assert "1 series with 1 samples are refused" in answer.text
    assert list(server.stored()) == ['up{instance="i",job="j"}']
    headers = {name: value for name, value in answer.headers.items() if name.startswith("x-prometheus")}
    expected = {WRITTEN.format(what): n for what, n in (("samples", "1"), ("histograms", "0"), ("exemplars", "0"))}
    assert headers == (expected if version else {})


DAY_MS = 24 * 3600 * 1000


@pytest.mark.parametrize(
    ("ts_ms", "reason"),
    [
        (NOW_MS - 6 * DAY_MS, "too_old"),
        (NOW_MS + DAY_MS, "too_far_ahead"),
        (NOW_MS - 4 * DAY_MS, ""),
        (-1, "too_old"),
        (2**62, "too_far_ahead"),
        (-(2**63), "too_old"),
    ],
)
def test_times_out_of_range_are_400_and_late_ones_are_stored(server: WriteServer, ts_ms: int, reason: str) -> None:
    answer = send(server, request_1([(UP, [(ts_ms, 1.0)])]))
    assert (answer.status, reason in answer.text) == (400 if reason else 204, True)
    assert len(server.stored()) == (0 if reason else 1)


def test_samples_out_of_order_and_twice_are_stored_and_the_last_wins(server: WriteServer) -> None:
    samples = [(NOW_MS, 1.0), (NOW_MS - 5000, 2.0), (NOW_MS, 3.0)]
    assert send(server, request_1([(UP, samples)])).status == 204
    assert server.stored() == {'up{instance="i",job="j"}': {NOW_MS: bits(3.0), NOW_MS - 5000: bits(2.0)}}


def test_an_empty_request_is_accepted(server: WriteServer) -> None:
    assert send(server, request_1([])).status == 204
    answer = send(server, request_2([]))
    assert (answer.status, answer.headers[WRITTEN.format("samples")]) == (204, "0")


def test_a_series_without_samples_is_ignored(server: WriteServer) -> None:
    assert send(server, request_1([(UP, [])])).status == 204
    assert server.stored() == {}


def test_2_0_states_what_was_written_and_1_0_does_not(server: WriteServer) -> None:
    series: list[tuple[Labels, list[tuple[int, float]]]] = [(UP, [(NOW_MS, 1.0), (NOW_MS + 1, 2.0)])]
    two, one = send(server, request_2(series)), send(server, request_1(series))
    assert {WRITTEN.format(what): two.headers.get(WRITTEN.format(what)) for what in ("samples", "histograms")} == {
        WRITTEN.format("samples"): "2",
        WRITTEN.format("histograms"): "0",
    }
    assert two.headers[WRITTEN.format("exemplars")] == "0"
    assert not any(name.startswith("x-prometheus") for name in one.headers)


def test_created_timestamps_are_dropped_and_the_samples_kept(server: WriteServer) -> None:
    two = request_2([(UP, [(NOW_MS, 1.0)])])
    two.timeseries[0].created_timestamp = 5
    two.timeseries[0].samples[0].start_timestamp = 6
    assert send(server, two).status == 204
    assert server.stored() == {'up{instance="i",job="j"}': {NOW_MS: bits(1.0)}}


@pytest.mark.parametrize(
    ("references", "text"),
    [([1, 2, 99, 3], "outside the symbols"), ([1, 2, 3], "odd in number"), ([2**32 - 1, 0], "outside the symbols")],
)
def test_references_are_checked(server: WriteServer, references: list[int], text: str) -> None:
    message = request_2([(UP, [(NOW_MS, 1.0)]), (UP, [(NOW_MS, 2.0)])])
    del message.timeseries[1].labels_refs[:]
    message.timeseries[1].labels_refs.extend(references)
    answer = send(server, message)
    assert (answer.status, text in answer.text) == (400, True), answer.text
    assert server.stored() == {'up{instance="i",job="j"}': {NOW_MS: bits(1.0)}}


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, b""),
        (400, b"\xff\xff\xff"),
        (400, snappy(b"\x0a\x05abc")),
        (400, snappy(b"\x0b")),
        (400, snappy(b"\x0a\x02\x12\x05")),
        (400, snappy(b"\xff" * 20)),
        (413, snappy(b"\x12\x02" + bytes(64 << 10))),
        (413, snappy(request_1([(UP, [(NOW_MS, 1.0)])] * 51))),
        (413, snappy(request_1([(UP, [(NOW_MS, 1.0)] * 101)]))),
    ],
)
def test_corrupt_and_large_bodies(server: WriteServer, status: int, body: bytes) -> None:
    answer = server.post(PATH, body, content_type=V1, content_encoding="snappy")
    assert (answer.status, "byte" in answer.text or "limit is" in answer.text) == (status, True), answer.text
    assert server.stored() == {}


def test_corrupt_protobuf_names_the_byte(server: WriteServer) -> None:
    good = GOOD_1.SerializeToString()
    answer = server.post(PATH, snappy(good + b"\x0a\x7f"), content_type=V1, content_encoding="snappy")
    assert (answer.status, f"byte {len(good)}" in answer.text) == (400, True)


def test_labels_that_symbols_multiply_are_bounded(server: WriteServer) -> None:
    message, symbols = TWO["Request"](), Symbols()
    references = [symbols("__name__"), symbols("x" * 2000)]
    for name in range(3):
        references += [symbols(f"a{name}"), symbols("x" * 2000)]
    message.symbols.extend(symbols.texts)
    for _ in range(20):
        message.timeseries.add(labels_refs=references).samples.add(value=1.0, timestamp=NOW_MS)
    answer = send(server, message)
    assert (answer.status, "bytes of labels" in answer.text) == (413, True)


@pytest.mark.parametrize(("token", "status"), [("", 401), ("Bearer wrong", 401), ("Bearer good", 204)])
def test_the_token(token: str, status: int) -> None:
    with write_server(remote_write, tokens=Tokens(text="good")) as server:
        answer = send(server, GOOD_1, authorization=token)
        assert answer.status == status
        assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)
        assert len(server.stored()) == (status == 204)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Unavailable("no broker answers", reason="unavailable", retry_after_s=1.0), 503),
        (Overloaded("the queue is full", reason="queue_full", retry_after_s=1.0), 503),
    ],
)
def test_a_log_that_is_away_is_503_with_a_hint(server: WriteServer, error: TsdbError, status: int) -> None:
    server.bench.log.plan = lambda topic, partition, value: Fault(error) if topic == METRICS else None
    answer = send(server, GOOD_1)
    assert (answer.status, answer.headers["retry-after"]) == (status, "1")
    server.bench.log.plan = lambda topic, partition, value: None
    assert send(server, GOOD_1).status == 204


def test_metadata_is_written_when_new_or_changed_only(server: WriteServer) -> None:
    families = [("up", 2, "Is it up?", ""), ("hist", 3, "A histogram.", "seconds"), ("unknown", 0, "", "")]
    for _ in range(2):
        assert send(server, request_1([], families)).status == 204
    up, hist = Family("up", "gauge", "Is it up?"), Family("hist", "histogram", "A histogram.", "seconds")
    assert server.families() == [up, hist]
    changed = [("up", 2, "Another text.", "")]
    assert send(server, request_1([], changed)).status == 204
    assert server.families() == [up, hist], "a change within a minute waits"
    server.bench.clock.advance(61_000)
    assert send(server, request_1([], changed)).status == 204
    assert server.families() == [up, hist, Family("up", "gauge", "Another text.")]


def test_metadata_of_2_0_is_that_of_the_family(server: WriteServer) -> None:
    series: list[tuple[Labels, list[tuple[int, float]]]] = [
        ({"__name__": name, "job": "j"}, [(NOW_MS, 1.0)]) for name in ("h_bucket", "h_sum", "h_count")
    ]
    assert send(server, request_2(series, (3, "A histogram.", "s"))).status == 204
    assert server.families() == [Family("h", "histogram", "A histogram.", "s")]


CLASSIC = {
    'lat_bucket{job="j",le="-2"}': 0.0,
    'lat_bucket{job="j",le="-1"}': 1.0,
    'lat_bucket{job="j",le="-0.001"}': 1.0,
    'lat_bucket{job="j",le="0.001"}': 2.0,
    'lat_bucket{job="j",le="0.5"}': 2.0,
    'lat_bucket{job="j",le="1"}': 3.0,
    'lat_bucket{job="j",le="2"}': 5.0,
    'lat_bucket{job="j",le="8"}': 5.0,
    'lat_bucket{job="j",le="16"}': 6.0,
    'lat_bucket{job="j",le="+Inf"}': 6.0,
    'lat_sum{job="j"}': 18.5,
    'lat_count{job="j"}': 6.0,
}
LATENCY = {"__name__": "lat", "job": "j"}


@pytest.mark.parametrize("floats", [False, True])
@pytest.mark.parametrize("version", [0, 1])
def test_native_histograms_become_classic_and_stale_with_them(server: WriteServer, version: int, floats: bool) -> None:
    message, stale = both([(LATENCY, [])])[version], both([(LATENCY, [])])[version]
    add_histogram(message, NOW_MS, floats=floats)
    answer = send(server, message)
    assert answer.status == 204, answer.text
    assert answer.headers.get(WRITTEN.format("histograms")) == ("1" if version else None)
    assert server.stored() == {name: {NOW_MS: bits(value)} for name, value in CLASSIC.items()}
    add_histogram(stale, NOW_MS, stale=True)
    stale.timeseries[0].histograms[0].timestamp = NOW_MS + 1
    assert send(server, stale).status == 204
    assert {name: values.get(NOW_MS + 1) for name, values in server.stored().items()} == dict.fromkeys(CLASSIC, STALE)


def test_custom_buckets_keep_their_own_bounds(server: WriteServer) -> None:
    message = request_2([(LATENCY, [])])
    one = message.timeseries[0].histograms.add(schema=-53, timestamp=NOW_MS, count_int=4, sum=-10.0)
    one.custom_values.extend([0.005, 1.0, 2500000.0])
    one.positive_spans.add(offset=1, length=3)
    one.positive_deltas.extend([1, 1, -1])
    assert send(server, message).status == 204
    assert server.stored()['lat_sum{job="j"}'] == {NOW_MS: bits(-10.0)}
    buckets = {name: values[NOW_MS] for name, values in server.stored().items() if "_bucket" in name}
    expected = {"0.005": 0.0, "1": 1.0, "2.5e+06": 3.0, "+Inf": 4.0}
    assert buckets == {f'lat_bucket{{job="j",le="{bound}"}}': bits(count) for bound, count in expected.items()}


def broken(**fields: Any) -> Any:
    message = request_1([(UP, [(NOW_MS, 1.0)]), (LATENCY, [])])
    message.timeseries[1].histograms.add(timestamp=NOW_MS, **fields)
    return message


SPAN = ONE["BucketSpan"]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (broken(schema=53), "schema 53, must be -4 to 8"),
        (broken(positive_spans=[SPAN(offset=0, length=4_000_000_000)]), "reaches from bucket 0 to 3999999999"),
        (broken(positive_spans=[SPAN(length=70_000)]), "70000 buckets, the limit is 65536"),
        (broken(count_int=0, positive_spans=[SPAN(length=1)], positive_deltas=[-1]), "negative bucket count"),
        (
            broken(positive_spans=[SPAN(), SPAN(offset=-1, length=1)], positive_deltas=[1]),
            "positive span 2 has offset -1",
        ),
        (broken(schema=-53, custom_values=[2.0, 1.0]), "custom bounds must ascend"),
        (
            broken(schema=-53, positive_spans=[SPAN(offset=2, length=1)], positive_deltas=[1]),
            "0 custom bounds are too few for 3 buckets",
        ),
        (broken(positive_spans=[SPAN(length=2)], positive_deltas=[1]), "spans and counts differ"),
        (broken(positive_spans=[SPAN(length=1)], positive_deltas=[1], count_int=2), "count mismatch"),
    ],
)
def test_a_broken_histogram_is_named_and_the_others_are_stored(server: WriteServer, message: Any, text: str) -> None:
    answer = send(server, message)
    assert (answer.status, text in answer.text) == (400, True), answer.text
    assert list(server.stored()) == ['up{instance="i",job="j"}']


def refusing(limits: IngestLimits) -> WriteProtocol:
    return remote_write(limits, native_histograms="refuse")


def test_native_histograms_can_be_refused_by_name() -> None:
    message = request_1([(UP, [(NOW_MS, 1.0)]), (LATENCY, [])])
    message.timeseries[1].histograms.add(timestamp=NOW_MS, count_int=1)
    with write_server(refusing) as server:
        answer = send(server, message)
        assert (answer.status, "native_histograms = refuse" in answer.text) == (400, True)
        assert list(server.stored()) == ['up{instance="i",job="j"}']


def test_a_message_of_the_other_version_is_no_success(server: WriteServer) -> None:
    assert send(server, GOOD_2, content_type=V1).status in (204, 400)
    assert server.stored() == {}
