"""`tsdb queries` lists the running queries as a table and as JSON, and cancels one."""

from __future__ import annotations

import pytest

from support.cli import Shell
from support.fakes.fake_reader import FakeServer
from tsdb.v1 import reader_pb2

LONG = "sum(\n  rate(x[5m])\n) + " + " + ".join(["1"] * 100)


@pytest.fixture(autouse=True)
def running(server: FakeServer) -> None:
    server.queries = [
        reader_pb2.RunningQuery(
            number=7, kind="query_range", text="up", started_ms=1500, age_s=12.34, peer="10.0.0.1:5000"
        ),
        reader_pb2.RunningQuery(number=9, kind="grpc_query", text=LONG, started_ms=2500, age_s=0.01),
    ]


def test_running_queries_are_a_table(shell: Shell, server: FakeServer) -> None:
    heading, first, second = shell.ok("queries", "--address", server.address).text.splitlines()
    assert heading.split() == ["number", "age", "s", "kind", "peer", "query"]
    assert first.split() == ["7", "12.3", "query_range", "10.0.0.1:5000", "up"]
    assert second.split()[:4] == ["9", "0.0", "grpc_query", "-"]
    assert "sum( rate(x[5m]) ) + 1" in second
    assert second.rstrip().endswith("…")


def test_running_queries_are_json_with_the_whole_text(shell: Shell, server: FakeServer) -> None:
    first, second = shell.ok("queries", "--address", server.address, "--output", "json").json["queries"]
    assert first == {
        "number": 7,
        "kind": "query_range",
        "text": "up",
        "started_ms": 1500,
        "age_s": 12.34,
        "peer": "10.0.0.1:5000",
    }
    assert second["text"] == LONG


def test_a_query_is_cancelled_by_its_number(shell: Shell, server: FakeServer) -> None:
    done = shell.ok("queries", "--cancel", "7", "--address", server.address)
    assert (done.out, done.err.strip()) == (b"", "query 7 is cancelled")
    assert [query.number for query in server.queries] == [9]
    assert shell.ok("queries", "--cancel", "9", "--address", server.address, "--output", "json").json == {
        "cancelled": 9
    }


def test_a_query_that_does_not_run_is_a_failure(shell: Shell, server: FakeServer) -> None:
    done = shell.run("queries", "--cancel", "8", "--address", server.address)
    assert (done.code, done.out) == (1, b"")
    assert done.err.splitlines() == ["error: no query 8 runs, or it has ended by now (no_such_query)"]


@pytest.mark.parametrize("number", ["0", "-1", "x"])
def test_a_number_that_no_query_has_is_a_misuse(shell: Shell, server: FakeServer, number: str) -> None:
    assert shell.run("queries", "--cancel", number, "--address", server.address).code == 2
