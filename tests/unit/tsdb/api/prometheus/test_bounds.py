"""Bounds of queries: time, places, memory, peers that leave; and each has its metric."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from support.api.prometheus_server import NOW_MS, ApiServer, Got, api_server
from support.counters import sample
from support.servers.logs import wait_until
from tsdb.api.prometheus.call import ApiOptions
from tsdb.api.prometheus.work_pool import WorkPool
from tsdb.model.errors import Overloaded
from tsdb.ops.auth import Tokens
from tsdb.ops.http.connections import HttpLimits
from tsdb.query.promql.running import RunningQueries
from tsdb.reader.read_call import AnswerBytes

SMALL = replace(ApiOptions(), running_max=1, waiting_max=1, lookups_max=1)
WITHIN_S = 60.0  # Covers kernels that are not in the cache yet.


@contextlib.contextmanager
def held_up(options: ApiOptions = SMALL) -> Iterator[tuple[ApiServer, Callable[..., Future[Got]]]]:
    """A server whose reads wait for `gate`, and a function that asks on another thread."""
    with api_server(options) as served, ThreadPoolExecutor(16) as pool:
        served.samples.add({"__name__": "up"}, [(NOW_MS, 1.0)])
        served.samples.gate = threading.Event()
        yield served, lambda path, **asked: pool.submit(served.get, path, **asked)
        served.samples.gate.set()


def test_a_full_queue_refuses_and_lookups_have_their_own() -> None:
    refused = sample("tsdb_query_refused_total", reason="query_queue")
    with held_up() as (served, ask):
        running = ask("query", query="up")
        assert served.samples.reading.wait(WITHIN_S)
        waiting = ask("query", query="up")
        wait_until(lambda: sample("tsdb_query_waiting") == 1, WITHIN_S)
        got = served.get("query", query="up")
        assert got.failure == (
            503,
            "unavailable",
            "1 queries run and 1 wait; the limit is 1 waiting (reason: query_queue)",
        )
        assert got.headers["retry-after"] == "1"
        assert sample("tsdb_query_refused_total", reason="query_queue") == refused + 1
        assert served.get("format_query", query="up").data == "up"
        assert served.samples.gate is not None
        served.samples.gate.set()
        assert running.result(WITHIN_S).status == waiting.result(WITHIN_S).status == 200
        assert served.get("query", query="up").status == 200
    assert sample("tsdb_query_waiting") == sample("tsdb_query_running") == 0


def test_a_query_over_its_time_is_a_timeout() -> None:
    before = sample("tsdb_query_ended_early_total", reason="timeout")
    with held_up() as (served, _):
        got = served.get("query", query="up", timeout="0.05")
        phases = ["expression evaluation"]
        if not served.samples.reading.is_set():  # On a busy machine its time may be over before it reads.
            phases.append("query queue")
        assert got.failure in [(503, "timeout", f"query timed out in {phase}") for phase in phases]
        assert sample("tsdb_query_ended_early_total", reason="timeout") == before + 1
        assert served.get("query", query="1", timeout="0").failure[1] == "timeout"
        assert served.get("query", query="1").status == 200


def test_the_setting_bounds_a_query_too() -> None:
    with held_up(replace(SMALL, timeout_s=0.05)) as (served, _):
        for path in ("query", "labels"):
            assert served.get(path, query="up", timeout="1h").failure[1] == "timeout"


def test_the_time_in_the_queue_counts() -> None:
    with held_up() as (served, ask):
        first = ask("query", query="up")
        assert served.samples.reading.wait(WITHIN_S)
        second = ask("query", query="up", timeout="0.05")
        wait_until(lambda: sample("tsdb_query_waiting") == 1, WITHIN_S)
        time.sleep(0.1)
        served.samples.reading.clear()
        assert served.samples.gate is not None
        served.samples.gate.set()
        assert first.result(WITHIN_S).status == 200
        assert second.result(WITHIN_S).failure == (503, "timeout", "query timed out in query queue")
        assert not served.samples.reading.is_set(), "it was not begun"


def test_a_query_can_be_cancelled() -> None:
    with held_up() as (served, ask):
        asked = ask("query", query="up")
        assert served.samples.reading.wait(WITHIN_S)
        (running,) = served.api.running.all()
        assert (running.text, running.kind) == ("up", "query")
        assert served.api.running.cancel(running.number)
        assert asked.result(WITHIN_S).failure == (499, "canceled", "query was canceled in expression evaluation")
        assert served.api.running.all() == []
        assert not served.api.running.cancel(running.number)


@pytest.mark.parametrize("url", ["/api/v1/query?query=up", "/api/v1/labels"])
def test_a_peer_that_leaves_ends_its_query(url: str) -> None:
    before = sample("tsdb_query_ended_early_total", reason="peer_left")
    with held_up() as (served, _):
        with socket.create_connection(("127.0.0.1", served.server.port)) as peer:
            peer.sendall(f"GET {url} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
            assert served.samples.reading.wait(WITHIN_S)
        wait_until(lambda: served.api.running.all() == [], WITHIN_S)
        assert sample("tsdb_query_ended_early_total", reason="peer_left") == before + 1
        assert served.samples.gate is not None
        served.samples.gate.set()
        assert served.get("query", query="up").status == 200


def test_a_peer_that_leaves_while_it_waits_costs_no_evaluation() -> None:
    left = sample("tsdb_query_ended_early_total", reason="peer_left")
    with held_up() as (served, ask):
        first = ask("query", query="up")
        assert served.samples.reading.wait(WITHIN_S)
        with socket.create_connection(("127.0.0.1", served.server.port)) as peer:
            peer.sendall(b"GET /api/v1/query?query=up HTTP/1.1\r\nhost: a\r\n\r\n")
            wait_until(lambda: sample("tsdb_query_waiting") == 1, WITHIN_S)
        wait_until(lambda: sample("tsdb_query_ended_early_total", reason="peer_left") > left, WITHIN_S)
        served.samples.reading.clear()
        assert served.samples.gate is not None
        served.samples.gate.set()
        assert first.result(WITHIN_S).status == 200
        wait_until(lambda: sample("tsdb_query_waiting") == 0, WITHIN_S)
        assert not served.samples.reading.is_set()


@pytest.fixture(scope="module")
def large() -> Iterator[ApiServer]:
    """A server whose answer to `x` over 5000 steps has some 40 MB."""
    with api_server() as served:
        _add_many(served)
        yield served


def _add_many(served: ApiServer) -> None:
    for number in range(400):
        served.samples.add({"__name__": "x", "n": str(number)}, [(0, 1 / (number + 3))])


RANGE: dict[str, Any] = {"query": "x", "start": 0, "end": 4999, "step": 1, "lookback_delta": "2h"}
URL = "/api/v1/query_range?query=x&start=0&end=4999&step=1&lookback_delta=2h"


@pytest.mark.slow
def test_a_large_answer_comes_in_chunks(large: ApiServer) -> None:
    got = large.get("query_range", **RANGE)
    assert got.headers["transfer-encoding"] == "chunked"
    assert "content-length" not in got.headers
    result = got.data["result"]
    assert len(result) == 400
    assert all(len(series["values"]) == 5000 for series in result)
    assert result[7]["values"][4999] == [4999, repr(1 / (int(result[7]["metric"]["n"]) + 3))]
    wait_until(lambda: sample("tsdb_answers_bytes") == 0, WITHIN_S)


def test_an_old_client_gets_a_large_answer_without_chunks(large: ApiServer) -> None:
    with socket.create_connection(("127.0.0.1", large.server.port), timeout=WITHIN_S) as peer:
        peer.sendall(f"GET {URL} HTTP/1.0\r\n\r\n".encode())
        received = b"".join(iter(lambda: peer.recv(1 << 20), b""))
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert body == large.get("query_range", **RANGE).body


def test_pipelined_requests_keep_their_order(large: ApiServer) -> None:
    with socket.create_connection(("127.0.0.1", large.server.port), timeout=WITHIN_S) as peer:
        other = "GET /api/v1/query?query=42&time=7 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        peer.sendall(f"GET {URL} HTTP/1.1\r\nhost: a\r\n\r\n{other}".encode())
        received = b"".join(iter(lambda: peer.recv(1 << 20), b""))
    first, _, second = received.partition(b"\r\n0\r\n\r\n")
    assert first.startswith(b"HTTP/1.1 200")
    assert second.startswith(b"HTTP/1.1 200")
    assert second.endswith(b'"result":[7,"42"]}}')


def test_a_peer_that_does_not_read_holds_bounded_memory_and_lets_go_of_it(large: ApiServer) -> None:
    made = sample("tsdb_query_answer_bytes_total")
    with socket.create_connection(("127.0.0.1", large.server.port)) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        peer.sendall(f"GET {URL} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
        wait_until(lambda: sample("tsdb_query_answer_bytes_total") > made, WITHIN_S)
        _settle(lambda: sample("tsdb_query_answer_bytes_total"))
        assert 0 < sample("tsdb_query_answer_bytes_total") - made < 20 << 20, "the rest is not made"
        assert large.get("query", query="1").status == 200
    wait_until(lambda: sample("tsdb_answers_bytes") == 0, WITHIN_S)


def _settle(value: Callable[[], float]) -> None:
    """Wait until a value stays the same."""
    before = -1.0
    while before != (before := value()):
        time.sleep(0.2)


def test_a_peer_that_does_not_read_is_cut_off_in_time() -> None:
    def cuts() -> float:
        return sample("tsdb_http_connections_closed_total", reason="request_timeout")

    closed = cuts()
    options = replace(ApiOptions(), timeout_s=0.5, send_s=0.1)
    with api_server(options, limits=HttpLimits(request_timeout_s=60)) as served, contextlib.ExitStack() as stack:
        _add_many(served)

        def is_cut() -> bool:
            """Whether an unread answer was cut off. On a busy machine the query itself may time out, with a small
            answer."""
            late = sample("tsdb_query_ended_early_total", reason="timeout")
            peer = stack.enter_context(socket.create_connection(("127.0.0.1", served.server.port)))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            peer.sendall(f"GET {URL} HTTP/1.1\r\nhost: a\r\n\r\n".encode())
            wait_until(lambda: cuts() > closed or sample("tsdb_query_ended_early_total", reason="timeout") > late)
            return cuts() > closed

        wait_until(is_cut, WITHIN_S)
    wait_until(lambda: sample("tsdb_answers_bytes") == 0, WITHIN_S)


def test_a_result_that_is_too_large_for_memory_is_refused() -> None:
    with api_server(answers=AnswerBytes(4 << 20)) as served:
        for number in range(100):
            served.samples.add({"__name__": "x", "n": str(number)}, [(0, 1.0)])
        status, kind, problem = served.get("query_range", **RANGE).failure
        assert (status, kind) == (422, "execution")
        assert "answers_bytes_max" in problem
        assert served.get("query", query="1").status == 200


def test_a_slow_query_is_logged_with_what_it_read(caplog: pytest.LogCaptureFixture) -> None:
    slow = sample("tsdb_query_slow_total")
    with api_server(replace(ApiOptions(), slow_s=0.0)) as served:
        served.samples.add({"__name__": "up"}, [(NOW_MS - 1, 1.0), (NOW_MS, 1.0)])
        served.get("query", query="up + up")
    (line,) = [record.msg for record in caplog.records if "slow query" in str(record.msg)]
    assert isinstance(line, dict)
    assert (line["query"], line["kind"]) == ("up + up", "instant")
    assert (line["selects"], line["series"], line["samples"]) == (2, 2, 4)
    assert sample("tsdb_query_slow_total") == slow + 1


def test_a_body_over_its_bound_is_413() -> None:
    with api_server() as served:
        got = served.send("POST", "/api/v1/query", b"query=" + b"x" * (5 << 20), {})
        assert got.failure[:2] == (413, "bad_data")


def test_a_token_is_required_where_one_is_set() -> None:
    with api_server(tokens=Tokens(text="secret")) as served:
        got = served.get("query", query="1")
        assert got.failure[:2] == (401, "unauthorized")
        assert got.headers["www-authenticate"] == "Bearer"
        assert served.get("query", {"authorization": "Bearer secret"}, query="1").status == 200


def test_a_draining_process_refuses_and_finishes_the_others() -> None:
    with held_up() as (served, ask):
        asked = ask("query", query="up")
        assert served.samples.reading.wait(WITHIN_S)
        served.api.close()
        assert served.get("query", query="up").failure == (
            503,
            "unavailable",
            "the process is ending; ask another replica (reason: draining)",
        )
        assert served.samples.gate is not None
        served.samples.gate.set()
        assert asked.result(WITHIN_S).status == 200


def test_abort_ends_the_running_queries() -> None:
    with held_up() as (served, ask):
        asked = ask("query", query="up")
        assert served.samples.reading.wait(WITHIN_S)
        served.api.abort()
        assert asked.result(WITHIN_S).failure[1] == "canceled"


def test_an_answer_that_is_being_sent_is_whole_at_the_end_of_the_process() -> None:
    with api_server() as served:
        _add_many(served)
        with socket.create_connection(("127.0.0.1", served.server.port), timeout=WITHIN_S) as peer:
            peer.sendall(f"GET {URL} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
            wait_until(lambda: sample("tsdb_answers_bytes") > 0, WITHIN_S)
            served.api.close()
            assert served.api.join(WITHIN_S)
            received = b"".join(iter(lambda: peer.recv(1 << 20), b""))
        assert received.endswith(b"\r\n0\r\n\r\n")
        wait_until(lambda: sample("tsdb_answers_bytes") == 0, WITHIN_S)


def test_work_that_fails_leaves_its_place() -> None:
    pool = WorkPool("query-test", 1, waiting_max=0)
    pool.start()
    for _ in range(3):
        wait_until(lambda: _takes(pool, _fail), WITHIN_S)
    wait_until(lambda: _takes(pool, lambda: None), WITHIN_S)
    pool.close()
    assert pool.join(WITHIN_S)


def _fail() -> None:
    raise ValueError("a bug")


def _takes(pool: WorkPool, work: Callable[[], None]) -> bool:
    try:
        pool.submit(work)
    except Overloaded:
        return False
    return True


def test_callbacks_of_a_query_that_has_ended_do_not_run_later() -> None:
    query = RunningQueries().open("query", 60.0)
    ran: list[str] = []
    assert query.add_callback(lambda: ran.append("first"))
    query.end("canceled")
    query.end("peer_left")
    assert ran == ["first"]
    assert not query.add_callback(lambda: ran.append("second"))
    assert not query.is_active()


def test_a_connection_serves_queries_one_after_another() -> None:
    with (
        api_server() as served,
        contextlib.closing(http.client.HTTPConnection("127.0.0.1", served.server.port, timeout=60)) as connection,
    ):
        for number in range(5):
            connection.request("GET", f"/api/v1/query?query={number}")
            assert connection.getresponse().read().endswith(f'"{number}"]}}}}'.encode())
