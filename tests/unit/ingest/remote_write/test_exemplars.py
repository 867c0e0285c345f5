"""Exemplars of remote write 1.0 and 2.0: which are on the log, and what becomes of bad ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cramjam
import pytest

from ingest.limits import IngestLimits
from ingest.remote_write.protocol import PATH, remote_write
from support.counters import sample
from support.data.exemplars import plain
from support.senders.remote_write import TWO, exemplars_1, exemplars_2, snappy
from support.senders.write_receiver import HttpReply, WriteServer, write_server
from support.servers.gateways import NOW_MS, Bench
from tsdb.codec.records.log_record import FLAG_EXEMPLARS
from tsdb.log.interface import METRICS
from tsdb.model.labels import canonical_labels, format_series

V1 = "application/x-protobuf"
V2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
UP = {"__name__": "up", "job": "j", "instance": "i"}
DOWN = {"__name__": "down", "job": "j", "instance": "i"}
WRITTEN = "x-prometheus-remote-write-exemplars-written"
Found = tuple[str, int, float, dict[str, str]]


@pytest.fixture
def server() -> Iterator[WriteServer]:
    with write_server(remote_write, bench=Bench(limits=IngestLimits(exemplars_max=5))) as served:
        yield served


BOTH = pytest.mark.parametrize("make", [exemplars_1, exemplars_2])
Make = Callable[..., Any]


def send(server: WriteServer, message: Any) -> HttpReply:
    content_type = V2 if isinstance(message, TWO["Request"]) else V1
    return server.post(PATH, snappy(message), content_type=content_type, content_encoding="snappy")


def on_log(server: WriteServer) -> list[Found]:
    """Series, time, value and labels of each exemplar, in the order of the log."""
    decoded = server.bench.log.decoded()
    if decoded.exemplars is None:
        return []
    names = {found.series_id: format_series(found.canonical) for found in server.bench.log.announcements()}
    found = plain(decoded.exemplars.exemplars)
    return [(names[series_id], ts_ms, value, dict(labels)) for series_id, ts_ms, value, labels in found]


UP_TEXT, DOWN_TEXT = (format_series(canonical_labels(labels)) for labels in (UP, DOWN))
TRACE = {"trace_id": "4bf92f", "span_id": "00f067"}


@BOTH
def test_exemplars_are_on_the_log_after_their_samples(server: WriteServer, make: Make) -> None:
    accepted = sample("tsdb_ingest_exemplars_total")
    reply = send(server, make((UP, [(NOW_MS, 1.0)], [(NOW_MS - 5, 0.25, TRACE), (NOW_MS - 4, -0.0, {})])))
    assert (reply.status, reply.headers.get(WRITTEN)) == (204, "2" if make is exemplars_2 else None)
    assert on_log(server) == [(UP_TEXT, NOW_MS - 5, 0.25, TRACE), (UP_TEXT, NOW_MS - 4, 0.0, {})]
    assert server.bench.log.decoded().flags.tolist()[-1] == FLAG_EXEMPLARS
    assert server.stored()[UP_TEXT].keys() == {NOW_MS}
    assert sample("tsdb_ingest_exemplars_total") - accepted == 2


@BOTH
def test_a_series_may_bring_its_exemplars_without_samples(server: WriteServer, make: Make) -> None:
    """Prometheus sends samples and exemplars of a series in separate entries, or in separate requests."""
    assert send(server, make((UP, [(NOW_MS, 1.0)], []), (UP, [], [(NOW_MS, 1.0, TRACE)]))).status == 204
    assert send(server, make((UP, [], [(NOW_MS + 1, 2.0, TRACE)]))).status == 204
    assert on_log(server) == [(UP_TEXT, NOW_MS, 1.0, TRACE), (UP_TEXT, NOW_MS + 1, 2.0, TRACE)]


@BOTH
def test_an_exemplar_without_value_and_time_has_zeros(server: WriteServer, make: Make) -> None:
    assert send(server, make((UP, [(NOW_MS, 1.0)], [(0, 0.0, {})]))).status == 204
    assert on_log(server) == [(UP_TEXT, 0, 0.0, {})]


def dropped(reason: str) -> float:
    return sample("tsdb_ingest_exemplars_dropped_total", reason=reason)


LONG = {"a": "x" * 127}
BAD: dict[str, tuple[str, list[tuple[Mapping[str, str], list[Any], list[Any]]]]] = {
    "10 kB of labels": ("labels_too_long", [(UP, [(NOW_MS, 1.0)], [(NOW_MS, 1.0, {"a": "x" * 10_000})])]),
    "129 characters": ("labels_too_long", [(UP, [(NOW_MS, 1.0)], [(NOW_MS, 1.0, {"ab": "x" * 127})])]),
    "not UTF-8": ("labels_malformed", [(UP, [(NOW_MS, 1.0)], [(NOW_MS, 1.0, [(b"a", b"\xff")])])]),
    "over 10 minutes ahead": ("too_far_ahead", [(UP, [(NOW_MS, 1.0)], [(NOW_MS + 600_001, 1.0, {})])]),
    "an unknown series": ("unknown_series", [(UP, [(NOW_MS, 1.0)], []), (DOWN, [], [(NOW_MS, 1.0, {})])]),
}


@BOTH
@pytest.mark.parametrize("name", BAD)
def test_a_bad_exemplar_is_counted_and_refuses_nothing_else(server: WriteServer, make: Make, name: str) -> None:
    reason, series = BAD[name]
    before = dropped(reason)
    reply = send(server, make(*series))
    assert (reply.status, reply.headers.get(WRITTEN)) == (204, "0" if make is exemplars_2 else None), reply.text
    assert on_log(server) == []
    assert server.stored().keys() == {UP_TEXT}
    assert dropped(reason) - before == 1


@BOTH
def test_an_exemplar_may_be_10_minutes_ahead_and_of_any_age(server: WriteServer, make: Make) -> None:
    times = [-(1 << 62), 0, NOW_MS + 600_000]
    assert send(server, make((UP, [(NOW_MS, 1.0)], [(ts_ms, 1.0, {}) for ts_ms in times]))).status == 204
    assert [ts_ms for _, ts_ms, *_ in on_log(server)] == times


@BOTH
def test_labels_may_have_128_characters_of_any_width(server: WriteServer, make: Make) -> None:
    wide = {"a": "日" * 127}
    assert send(server, make((UP, [(NOW_MS, 1.0)], [(NOW_MS, 1.0, LONG), (NOW_MS + 1, 1.0, wide)]))).status == 204
    assert [labels for *_, labels in on_log(server)] == [LONG, wide]


@BOTH
def test_exemplars_of_a_refused_series_are_dropped_with_it(server: WriteServer, make: Make) -> None:
    before = dropped("refused_series")
    reply = send(server, make((DOWN, [(1, 1.0)], [(NOW_MS, 1.0, {})]), (UP, [(NOW_MS, 1.0)], [(NOW_MS, 2.0, {})])))
    assert reply.status == 400
    assert on_log(server) == [(UP_TEXT, NOW_MS, 2.0, {})]
    assert dropped("refused_series") - before == 1


@BOTH
def test_exemplars_over_the_limit_of_a_request_are_dropped(server: WriteServer, make: Make) -> None:
    before = dropped("too_many")
    assert send(server, make((UP, [(NOW_MS, 1.0)], [(NOW_MS + n, 1.0, {}) for n in range(8)]))).status == 204
    assert [ts_ms for _, ts_ms, *_ in on_log(server)] == [NOW_MS + n for n in range(5)]
    assert dropped("too_many") - before == 3


@pytest.mark.parametrize("references", [[1], [1, 99], [2**32 - 1, 1]])
def test_references_of_exemplars_are_checked(server: WriteServer, references: list[int]) -> None:
    message = exemplars_2((UP, [(NOW_MS, 1.0)], [(NOW_MS, 1.0, {})]))
    message.timeseries[0].exemplars[0].labels_refs.extend(references)
    before = dropped("labels_malformed")
    assert send(server, message).status == 204
    assert (on_log(server), dropped("labels_malformed") - before) == ([], 1)


def test_an_exemplar_that_is_no_message_refuses_the_request(server: WriteServer) -> None:
    message = exemplars_1((UP, [(NOW_MS, 1.0)], []))
    data = message.SerializeToString()
    assert data[0] == 0x0A
    broken = b"\x0a" + bytes([data[1] + 4]) + data[2:] + b"\x1a\x02\x0a\x7f"
    reply = server.post(PATH, bytes(cramjam.snappy.compress_raw(broken)), content_type=V1)
    assert (reply.status, "breaks the protobuf format at byte" in reply.text) == (400, True), reply.text
    assert server.bench.log.of(METRICS) == []


def test_requests_without_exemplars_have_the_records_that_they_had(server: WriteServer) -> None:
    with write_server(remote_write) as other:
        send(server, exemplars_1((UP, [(NOW_MS, 1.0)], []), (DOWN, [(NOW_MS, 2.0)], [])))
        send(other, exemplars_1((UP, [(NOW_MS, 1.0)], [(NOW_MS, 1.0, TRACE)]), (DOWN, [(NOW_MS, 2.0)], [])))
        plain_records, with_exemplars = (
            [record.value for record in at.bench.log.of(METRICS)] for at in (server, other)
        )
    assert with_exemplars[:-1] == plain_records


@BOTH
def test_an_exemplar_of_a_native_histogram_belongs_to_the_bucket_with_its_value(make: Make) -> None:
    with write_server(remote_write) as server:
        base = {"__name__": "h", "job": "j"}
        message = make((base, [], []))
        message.timeseries[0].histograms.add(
            timestamp=NOW_MS, schema=0, count_int=3, sum=6.0, zero_threshold=0.001, positive_deltas=[1, 1],
        ).positive_spans.add(offset=1, length=2)  # fmt: skip
        assert send(server, message).status == 204
        exemplars: list[Any] = [(NOW_MS, value, {}) for value in (0.5, 2.0, 3.0, 9.0)]
        assert send(server, make((base, [], exemplars))).status == 204
        assert [(series, value) for series, _, value, _ in on_log(server)] == [
            ('h_bucket{job="j",le="1"}', 0.5),
            ('h_bucket{job="j",le="2"}', 2.0),
            ('h_bucket{job="j",le="4"}', 3.0),
            ('h_bucket{job="j",le="+Inf"}', 9.0),
        ]
