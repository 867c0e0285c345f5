"""`tsdb agent` writes its measurements until a signal, and prints the counts."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from support.cli import Shell
from support.fakes.fake_reader import FakeServer
from tsdb.model.labels import metric_name, parse_labels


def loads(server: FakeServer) -> int:
    """Samples of a metric that each measurement of the host has once."""
    return sum(len(rows) for labels, rows in list(server.samples.items()) if metric_name(labels) == b"node_load1")


def test_the_host_is_measured_every_interval_until_a_signal(shell: Shell, server: FakeServer) -> None:
    def end_after_three(labels: bytes) -> str:
        if not ended.is_set() and loads(server) == 3:
            ended.set()
            os.kill(os.getpid(), signal.SIGTERM)
        return ""

    ended = threading.Event()
    server.refuse = end_after_three
    run = ("agent", "--address", server.address, "--interval", "20ms", "--output", "json")
    summary = shell.ok(*run, "--job", "j", "--instance", "i").json
    # On a busy machine a batch may hold two rounds, and one that ran out of time is sent twice.
    assert 0 < summary["samples"] <= sum(len(rows) for rows in server.samples.values())
    assert (summary["refused"], summary["dropped"]) == (0, 0)
    assert loads(server) >= 3
    assert {b"node_load1", b"node_cpu_seconds_total"} <= {metric_name(labels) for labels in server.samples}
    assert all({"job": "j", "instance": "i"}.items() <= dict(parse_labels(s)).items() for s in server.samples)


def test_the_host_is_measured_once_in_an_interval_and_not_after_the_duration(shell: Shell, server: FakeServer) -> None:
    run = ("agent", "--address", server.address, "--interval", "1h", "--duration", "1h", "--output", "json")
    assert shell.ok(*run).json["requests"] >= 1
    assert loads(server) == 1


def test_a_target_that_is_down_is_told_by_up(shell: Shell, server: FakeServer) -> None:
    target = ("--no-host", "--scrape", "web=http://127.0.0.1:1/metrics")
    shell.ok("agent", "--address", server.address, *target, "--duration", "1ms")
    up = [rows for labels, rows in server.samples.items() if metric_name(labels) == b"up"]
    assert [[value for _, value in rows] for rows in up] == [[0.0]]


def test_samples_that_were_lost_are_a_failure(shell: Shell, server: FakeServer) -> None:
    server.refuse = lambda labels: "too old"
    done = shell.run("agent", "--address", server.address, "--duration", "1ms", "--output", "json")
    assert done.code == 1
    assert done.json["refused"] > 0


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("--no-host",), "nothing to measure"),
        (("--scrape", "h:9100"), "not [JOB=]URL"),
        (("--interval", "0"), "from 1 ms"),
    ],
)
def test_a_misuse_is_exit_code_2(shell: Shell, server: FakeServer, arguments: tuple[str, ...], what: str) -> None:
    done = shell.run("agent", "--address", server.address, *arguments)
    assert done.code == 2
    assert what in " ".join(done.err.split())
