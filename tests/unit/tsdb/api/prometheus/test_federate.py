"""Federation and version, as Prometheus's server has them beside its API."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from urllib.parse import urlencode

import pytest

from support.api.prometheus_server import NOW_MS, ApiServer, Got, api_server
from support.data.column_cases import STALE_BITS
from tsdb.api.prometheus.pages.federate import float_text

STALE = struct.unpack("<d", struct.pack("<q", STALE_BITS))[0]
FIVE_MINUTES_MS = 300_000


@pytest.fixture(scope="module")
def served() -> Iterator[ApiServer]:
    with api_server() as server:
        add = server.samples.add
        add({"__name__": "up", "job": "a", "instance": "i"}, [(NOW_MS - 20_000, 0.0), (NOW_MS - 10_000, 1.0)])
        add({"__name__": "up", "job": "b"}, [(NOW_MS - 1, 0.5)])
        add({"__name__": "up", "job": "ended"}, [(NOW_MS - 2, 1.0), (NOW_MS - 1, STALE)])
        add({"__name__": "up", "job": "old"}, [(NOW_MS - FIVE_MINUTES_MS - 1, 1.0)])
        add({"__name__": "up", "job": "ahead"}, [(NOW_MS + 1, 1.0)])
        add({"__name__": "m.é", "job": 'q"\\\n', "a.b": "1"}, [(NOW_MS, float("inf"))])
        add({"__name__": "a_total", "job": "b"}, [(NOW_MS, 12_345_678.0)])
        yield server


def federate(served: ApiServer, *selectors: str, **parameters: str) -> Got:
    query = urlencode({"match[]": selectors, **parameters}, doseq=True)
    return served.send("GET", f"/federate?{query}", None, {})


def test_the_last_sample_of_each_series_within_the_lookback(served: ApiServer) -> None:
    got = federate(served, "up", 'a_total{job="b"}', '{job="b"}')
    assert got.status == 200
    assert got.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert got.body.decode().splitlines() == [
        "# TYPE a_total untyped",
        f'a_total{{instance="",job="b"}} 1.2345678e+07 {NOW_MS}',
        "# TYPE up untyped",
        f'up{{instance="",job="b"}} 0.5 {NOW_MS - 1}',
        f'up{{instance="i",job="a"}} 1 {NOW_MS - 10_000}',
    ]


def test_names_beyond_ascii_are_quoted_and_values_escaped(served: ApiServer) -> None:
    assert federate(served, '{"m.é"}').body.decode().splitlines() == [
        '# TYPE "m.é" untyped',
        f'{{"m.é","a.b"="1",instance="",job="q\\"\\\\\\n"}} +Inf {NOW_MS}',
    ]


def test_the_lookback_of_a_request(served: ApiServer) -> None:
    assert b'job="old"' in federate(served, "up", lookback_delta="10m").body
    assert b'job="a"' not in federate(served, "up", lookback_delta="5s").body


@pytest.mark.parametrize(
    ("selectors", "status", "body"),
    [((), 200, b""), (("none",), 200, b""), (("up{",), 400, b"match"), (('{job=~".*"}',), 400, b"non-empty")],
)
def test_no_and_bad_selectors(served: ApiServer, selectors: tuple[str, ...], status: int, body: bytes) -> None:
    got = federate(served, *selectors)
    assert (got.status, body in got.body) == (status, True), got.body
    assert status != 200 or got.body == body


def test_the_version_is_that_of_the_api_without_its_envelope(served: ApiServer) -> None:
    got = served.send("GET", "/version", None, {})
    assert (got.status, got.headers["content-type"]) == (200, "application/json")
    assert got.json == served.get("status/buildinfo").data


@pytest.mark.parametrize("path", ["/version", "/federate"])
def test_other_methods_are_refused(served: ApiServer, path: str) -> None:
    assert served.send("DELETE", path, None, {}).status in (400, 405)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (-0.0, "-0"), (1.0, "1"), (0.1, "0.1"), (999_999.0, "999999"), (1e6, "1e+06"), (1e-4, "0.0001"),
        (1e-5, "1e-05"), (1.5e300, "1.5e+300"), (float("nan"), "NaN"), (float("-inf"), "-Inf"), (5e-324, "5e-324"),
    ],
)  # fmt: skip
def test_values_are_written_as_go_writes_them(value: float, text: str) -> None:
    assert float_text(value) == text
