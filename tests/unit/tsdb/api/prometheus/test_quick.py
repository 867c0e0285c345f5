"""Quick queries: which ones the event loop's thread answers, and how it gives up on one that became long."""

from __future__ import annotations

import asyncio
import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from urllib.parse import urlencode

import pytest

from support.api.prometheus_server import NOW_MS, ApiServer, api_server
from support.counters import sample
from support.servers.logs import wait_until
from tsdb.api.prometheus.call import ApiOptions
from tsdb.api.prometheus.quick import FIRST_S, QUICK_S, SERIES_MAX, TEXTS_KEPT, TURN_S, QuickQueries
from tsdb.model.errors import Unavailable
from tsdb.ops.http.connection import HttpConnection
from tsdb.ops.threads import HandOver, NoWaits, before_wait, bind_waits, waiting_for_others
from tsdb.query.promql.running import RunningQueries
from tsdb.reader.limits import AnswerBytes

WITHIN_S = 60.0
ASKED = "GET {} HTTP/1.1\r\nhost: localhost\r\n\r\n"
KEY = ("/api/v1/query", "up")


@contextmanager
def served(options: ApiOptions = ApiOptions()) -> Iterator[tuple[ApiServer, list[str]]]:
    """A server that knows the query `up` as quick, and the names of the threads that read, which the list gets."""
    with api_server(options) as server:
        server.samples.add({"__name__": "up"}, [(NOW_MS, 1.0)])
        threads: list[str] = []
        open_storage = server.samples.open

        def opened(asked: object) -> object:
            threads.append(threading.current_thread().name)
            return open_storage(asked)  # type: ignore[arg-type]

        object.__setattr__(server.api._sources, "open_storage", opened)
        server.api._quick._known[KEY] = True
        yield server, threads


def is_loop(thread: str) -> bool:
    return thread == "ops-http"


def test_a_quick_query_is_answered_on_the_thread_of_its_socket() -> None:
    with served() as (server, threads):
        got = server.get("query", query="up")
    assert got.data["result"][0]["value"][1] == "1"
    assert threads == ["ops-http"]


def test_a_text_that_never_came_is_answered_by_a_worker_and_so_is_a_slow_one() -> None:
    with served() as (server, threads):
        server.get("query", query="up + up")
        server.api._quick.forget(KEY)
        server.get("query", query="up")
    assert len(threads) == 2
    assert not any(map(is_loop, threads))


def test_each_quick_query_counts_once() -> None:
    names = ("tsdb_query_samples_total", "tsdb_query_series_total")
    before = [sample(name) for name in names], sample("tsdb_query_requests_total", kind="query")
    with served() as (server, _):
        server.get("query", query="up")
    assert [sample(name) for name in names] == [count + 1 for count in before[0]]
    assert sample("tsdb_query_requests_total", kind="query") == before[1] + 1
    assert sample("tsdb_query_running") == 0


def test_a_query_that_became_long_goes_to_a_worker_and_holds_nobody() -> None:
    names = ("tsdb_query_samples_total", "tsdb_query_series_total")
    with served() as (server, threads):
        server.samples.gate = threading.Event()  # Each read now takes until it is set: it looks at its budget.
        before = [sample(name) for name in names], sample("tsdb_query_requests_total", kind="query")
        with ThreadPoolExecutor(1) as pool:
            long = pool.submit(server.get, "query", query="up")
            assert server.samples.reading.wait(WITHIN_S)
            # The thread of the sockets is free again although the query still runs.
            assert server.get("format_query", query="up").data == "up"
            # The next one does not begin there.
            assert not server.api._quick.takes(KEY)
            server.samples.gate.set()
            assert long.result(WITHIN_S).data["result"][0]["value"][1] == "1"
    assert list(map(is_loop, threads)) == [True, False]
    assert [sample(name) for name in names] == [count + 1 for count in before[0]]
    assert sample("tsdb_query_requests_total", kind="query") == before[1] + 1
    assert sample("tsdb_query_running") == 0


def test_an_error_is_the_workers_and_counts_once() -> None:
    with served() as (server, threads):
        server.samples.error = Unavailable("the store is away", reason="store_away")
        before = sample("tsdb_query_failures_total", reason="unavailable")
        assert server.get("query", query="up").status == 503
        assert sample("tsdb_query_failures_total", reason="unavailable") == before + 1
    assert list(map(is_loop, threads)) == [True, False]


def test_a_vector_over_the_bound_is_a_workers() -> None:
    with served() as (server, threads):
        server.api._quick._known["/api/v1/query_range", "up"] = True
        got = server.get("query_range", query="up", start=0, end=10_999, step=1)
    assert got.status == 200
    assert list(map(is_loop, threads)) == [True, False]


def test_reads_of_the_sockets_thread_have_lower_limits() -> None:
    with served() as (server, _):
        server.get("query", query="up")
        server.get("query", query="up + 1")
        quick, other = server.samples.options
    assert quick.limits is not None
    assert quick.limits.series_max == SERIES_MAX
    assert other.limits is None


def test_a_quick_query_is_answered_while_a_slow_one_has_the_only_slot() -> None:
    with served(replace(ApiOptions(), running_max=1)) as (server, threads):
        server.samples.gate = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            slow = pool.submit(server.get, "query", query="up + 1")
            assert server.samples.reading.wait(WITHIN_S)
            gate, server.samples.gate = server.samples.gate, None
            assert server.get("query", query="up").status == 200
            assert not slow.done()
            gate.set()
            assert slow.result(WITHIN_S).status == 200
    assert list(map(is_loop, threads)) == [False, True]


def test_an_ending_process_refuses_quick_queries_too() -> None:
    with served() as (server, threads):
        server.api.close()
        assert server.get("query", query="up").failure[:2] == (503, "unavailable")
    assert not threads


def test_pipelined_quick_queries_are_answered_in_their_order() -> None:
    count = 500
    with served() as (server, threads), socket.create_connection(("127.0.0.1", server.server.port), 30) as peer:
        for number in range(count):
            server.api._quick._known["/api/v1/query", f"{number}"] = True
        asked = [
            f"GET /api/v1/query?{urlencode({'query': number})} HTTP/1.1\r\nhost: localhost\r\n"
            for number in range(count)
        ]
        peer.sendall("\r\n".join((*asked[:-1], asked[-1] + "connection: close\r\n", "")).encode())
        received = b""
        while piece := peer.recv(1 << 16):
            received += piece
    values = [part.split(b'"')[-2] for part in received.split(b"]}}")[:-1]]
    assert values == [b"%d" % number for number in range(count)]
    assert any(map(is_loop, threads))


def test_a_connection_stays_open_after_a_quick_answer() -> None:
    with served() as (server, threads), closing(http.client.HTTPConnection("127.0.0.1", server.server.port)) as peer:
        for _ in range(3):
            peer.request("GET", "/api/v1/query?query=up")
            assert peer.getresponse().read()
    assert threads[0] == "ops-http"


@pytest.fixture
def timers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The timers of connections, in the order in which they are set."""
    names: list[str] = []
    expect = HttpConnection._expect

    def expected(connection: HttpConnection, reason: str, within_s: float) -> None:
        names.append(reason)
        expect(connection, reason, within_s)

    monkeypatch.setattr(HttpConnection, "_expect", expected)
    return names


def test_a_connection_is_idle_after_a_quick_answer_behind_another_one(timers: list[str]) -> None:
    with served() as (server, threads), socket.create_connection(("127.0.0.1", server.server.port), 30) as peer:
        peer.sendall((ASKED.format("/-/ready") + ASKED.format("/api/v1/query?query=up")).encode())
        received = b""
        while received.count(b"HTTP/1.1 200") < 2 or not received.endswith(b"}"):
            received += peer.recv(1 << 16)
        wait_until(lambda: timers[-1] == "idle_timeout", WITHIN_S)
    assert threads == ["ops-http"]


def test_a_query_behind_a_quick_one_has_the_time_of_a_request_when_more_bytes_come(timers: list[str]) -> None:
    with served() as (server, threads), socket.create_connection(("127.0.0.1", server.server.port), 30) as peer:
        server.api._quick._known["/api/v1/query", "1"] = True
        server.samples.gate = threading.Event()
        asked = ASKED.format("/api/v1/query?query=1") + ASKED.format("/api/v1/query?query=up-1")
        peer.sendall(asked.encode())
        assert server.samples.reading.wait(WITHIN_S)
        peer.sendall(b"GET / HTTP/1.1\r\n")
        assert server.get("format_query", query="up").data == "up"
        server.samples.gate.set()
        received = b""
        while b"vector" not in received:
            received += peer.recv(1 << 16)
    assert is_loop(threads[0])
    assert timers[:3].count("header_timeout") == 1
    assert timers.count("header_timeout") == 2, "one of each connection"


def test_a_turn_has_a_budget() -> None:
    async def turn() -> list[bool]:
        quick = QuickQueries()
        quick.add(KEY, 0.0)
        seen = [quick.takes(KEY)]
        quick.spend(TURN_S / 2)
        seen.append(quick.takes(KEY))
        quick.spend(TURN_S / 2)
        seen.append(quick.takes(KEY))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        seen.append(quick.takes(KEY))
        return seen

    assert asyncio.run(turn()) == [True, True, False, True]


@pytest.mark.parametrize(
    ("seconds", "is_quick"),
    [((FIRST_S,), True), ((2 * FIRST_S,), False), ((0.0, 2 * QUICK_S), False), ((2 * FIRST_S, QUICK_S), True)],
)
def test_the_last_run_decides(seconds: tuple[float, ...], is_quick: bool) -> None:
    quick = QuickQueries()
    for one in seconds:
        quick.add(KEY, one)
    assert quick.takes(KEY) is is_quick


def test_few_texts_are_remembered_and_no_long_one() -> None:
    quick = QuickQueries()
    for number in range(TEXTS_KEPT + 10):
        quick.add(("", str(number)), 0.0)
    quick.add(("", "1" * 2000), 0.0)
    assert len(quick._known) == TEXTS_KEPT
    assert not quick.takes(("", "0"))
    assert not quick.takes(("", "1" * 2000))


def test_a_query_over_its_budget_is_handed_over_where_it_looks() -> None:
    query = RunningQueries().open("query", 60.0)
    looks: tuple[Callable[[], object], ...] = (query.check, query.time_remaining)
    for look in looks:
        with pytest.raises(HandOver), query.within(0.0):
            look()
        look()
    assert query.is_active()


def test_a_thread_that_must_not_wait_hands_over_before_it_waits() -> None:
    before_wait()
    bind_waits(NoWaits())
    try:
        with pytest.raises(HandOver):
            before_wait()
        with pytest.raises(HandOver), waiting_for_others():
            raise AssertionError("it waits")
    finally:
        bind_waits(None)
    before_wait()


def test_memory_that_is_taken_is_a_reason_to_hand_over() -> None:
    answers = AnswerBytes(8 << 20, small_bytes=0)
    answers.take("one", 4 << 20, 0, before_wait)
    answers.take("two", 4 << 20, 0, before_wait)
    bind_waits(NoWaits())
    try:
        with pytest.raises(HandOver):
            answers.take("three", 1, 0, before_wait)
    finally:
        bind_waits(None)
