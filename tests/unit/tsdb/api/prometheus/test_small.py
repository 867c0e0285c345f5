"""Small queries are answered on the event loop's thread; others by a thread, with the same answer and counted once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from support.api.prometheus_server import NOW_MS, ApiServer, Samples, api_server
from support.counters import sample
from tsdb.api.prometheus.arrow import MEDIA_TYPE
from tsdb.api.prometheus.call import TRIAL_S, ApiOptions, ApiSources, Families
from tsdb.api.prometheus.small import LARGE_FOR_S, LARGE_TEXTS_MAX, LOST_S, TURN_S, SmallQueries
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Unavailable
from tsdb.ops.http.bodies import HttpHead
from tsdb.v1 import reader_pb2

LOOP, THREAD = "ops-http", "query-"
NOW_S = NOW_MS / 1000
QUERY = HttpHead("GET", "/api/v1/query", "query=up", {}, "127.0.0.1:1")
COUNTS = ("tsdb_query_samples_total", "tsdb_query_series_total", "tsdb_query_slow_total")


def fill(samples: Samples) -> None:
    for number in range(50):
        samples.add({"__name__": "up", "instance": str(number)}, [(NOW_MS - 1000, float(number))])


@pytest.fixture
def tried() -> Iterator[ApiServer]:
    with api_server(tries=True) as served:
        fill(served.samples)
        yield served


@pytest.fixture
def untried() -> Iterator[ApiServer]:
    with api_server() as served:
        fill(served.samples)
        yield served


def counts() -> list[float]:
    return [
        *map(sample, COUNTS),
        sample("tsdb_query_requests_total", kind="query"),
        sample("tsdb_query_duration_seconds_count", kind="instant"),
        sample("tsdb_query_duration_seconds_count", kind="range"),
        sample("tsdb_query_failures_total", reason="unavailable"),
        sample("tsdb_query_failures_total", reason="bad_data"),
        sample("tsdb_query_failures_total", reason="execution"),
    ]


def asked_of_both(tried: ApiServer, untried: ApiServer, path: str, headers: dict[str, str], **asked: Any) -> list[str]:
    """The threads on which a request was evaluated where it may be tried. Its answer and what it adds to the metrics
    are those of a server that tries nothing."""
    first = counts()
    expected = untried.get(path, headers, **asked)
    between = counts()
    got = tried.get(path, headers, **asked)
    assert (got.status, got.body) == (expected.status, expected.body)
    assert [b - a for a, b in zip(between, counts(), strict=True)] == [
        b - a for a, b in zip(first, between, strict=True)
    ]
    assert tried.api.running.all() == []
    assert set(evaluated_on(untried)) <= {THREAD}
    return evaluated_on(tried)


def evaluated_on(served: ApiServer) -> list[str]:
    return [name.rstrip("0123456789") for name in served.samples.threads]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("query", {"query": "1 + 1", "time": NOW_S}),
        ("query", {"query": "sum by (job) (up)", "time": NOW_S}),
        ("query", {"query": "up[5m]", "time": NOW_S, "limit": 3}),
        ("query_range", {"query": 'up{instance="3"}', "start": NOW_S - 60, "end": NOW_S, "step": 1}),
        ("query", {"query": "up + on () up", "time": NOW_S}),
        ("query", {"query": "up{", "time": NOW_S}),
        ("query", {"query": 'up{instance=~"("}', "time": NOW_S}),
    ],
)
def test_a_small_query_is_answered_on_the_loop(
    tried: ApiServer, untried: ApiServer, path: str, asked: dict[str, Any]
) -> None:
    assert asked_of_both(tried, untried, path, {}, **asked) == [LOOP]


@pytest.mark.parametrize(
    ("path", "headers", "asked", "threads"),
    [
        ("query", {}, {"query": "up" + " " * 2048, "time": NOW_S}, [THREAD]),
        ("query", {"accept": MEDIA_TYPE}, {"query": "up", "time": NOW_S}, [THREAD]),
        ("query_range", {}, {"query": "1", "start": NOW_S - 300, "end": NOW_S, "step": 1}, [THREAD]),
        ("query_range", {}, {"query": "up", "start": NOW_S - 200, "end": NOW_S, "step": 1}, [LOOP, THREAD]),
    ],
    ids=["long", "arrow", "many steps", "many values"],
)
def test_another_query_is_answered_by_a_thread(
    tried: ApiServer,
    untried: ApiServer,
    path: str,
    headers: dict[str, str],
    asked: dict[str, Any],
    threads: list[str],
) -> None:
    assert asked_of_both(tried, untried, path, headers, **asked) == threads


def test_a_read_that_fails_on_the_loop_is_answered_by_a_thread(tried: ApiServer, untried: ApiServer) -> None:
    for served in (tried, untried):
        served.samples.error = Unavailable("away")
    assert asked_of_both(tried, untried, "query", {}, query="up", time=NOW_S) == [LOOP, THREAD]


def test_a_trial_ends_when_it_has_taken_its_time(tried: ApiServer, untried: ApiServer) -> None:
    tried.samples.read_s = 2 * TRIAL_S
    assert asked_of_both(tried, untried, "query", {}, query="up + up", time=NOW_S) == [LOOP, THREAD]


def test_a_draining_process_tries_nothing(tried: ApiServer) -> None:
    tried.api.close()
    status, kind, text = tried.get("query", query="up").failure
    assert (status, kind, "the process is ending" in text) == (503, "unavailable", True)


def small_queries(clock: ManualClock) -> SmallQueries:
    samples = Samples()
    sources = ApiSources(samples.open, lambda: Families({}), lambda *_: reader_pb2.CardinalityResponse(), dict, clock)
    return SmallQueries(sources, ApiOptions(), samples.open)


def test_a_turn_of_the_loop_has_a_bounded_time_for_trials() -> None:
    async def turns() -> list[bool]:
        small = small_queries(ManualClock(0))
        small.add("a", TURN_S / 2, is_answered=True)
        found = [small.tries(QUERY, b"")]
        small.add("b", TURN_S / 2, is_answered=True)
        found.append(small.tries(QUERY, b""))
        await asyncio.sleep(0)
        return [*found, small.tries(QUERY, b"")]

    assert asyncio.run(turns()) == [True, False, True]


def test_a_text_whose_trial_was_lost_time_is_not_tried_for_a_while() -> None:
    async def found() -> list[bool]:
        clock = ManualClock(0)
        small = small_queries(clock)
        small.add("lost", 2 * LOST_S, is_answered=False)
        small.add("cheap", LOST_S / 2, is_answered=False)
        small.add("slow", 2 * LOST_S, is_answered=True)
        before = list(map(small.is_large, ("lost", "cheap", "slow", "new")))
        clock.advance(int(LARGE_FOR_S * 1000))
        return [*before, small.is_large("lost")]

    assert asyncio.run(found()) == [True, False, False, False, False]


def test_few_texts_are_remembered() -> None:
    async def found() -> list[bool]:
        small = small_queries(ManualClock(0))
        for number in range(LARGE_TEXTS_MAX + 1):
            small.add(str(number), 1.0, is_answered=False)
        return [small.is_large("0"), small.is_large("1")]

    assert asyncio.run(found()) == [False, True]
