"""The command ends on any input, with the right exit code and one line. Nothing hangs."""

from __future__ import annotations

import contextlib
import http.server
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.fakes.fake_reader import FakeServer
from support.servers.processes import TSDB, run_tsdb
from tsdb.model.labels import canonical_labels, metric_name, parse_labels

WITHIN_S = 30.0  # A start takes a second on a busy machine; only a hang takes all of it.


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


def test_a_line_with_an_exemplar_ends(server: FakeServer, tmp_path: Path) -> None:
    (tmp_path / "x.prom").write_text('a{x="1"} 3 1000 # {t="a"} 0.5\n')
    done = run_tsdb("write", str(tmp_path / "x.prom"), "--address", server.address, timeout_s=WITHIN_S)
    assert done.returncode == 0, done
    assert server.samples == {canonical_labels({"__name__": "a", "x": "1"}): [(1000, 3.0)]}


def test_a_file_without_the_columns_is_one_line_and_exit_code_1(server: FakeServer, tmp_path: Path) -> None:
    # Larger than one block: the thread that reads ahead must not survive the end of the process.
    (tmp_path / "x.csv").write_bytes(b"a,b,c\n" + b"1,2,3\n" * 5_000_000)
    done = run_tsdb("write", str(tmp_path / "x.csv"), "--address", server.address, timeout_s=WITHIN_S)
    assert done.returncode == 1, done
    assert b"no column labels, ts_ms, value" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("output", ["table", "json"])
def test_labels_beyond_the_encoding_of_stdout_are_escaped(server: FakeServer, output: str) -> None:
    server.samples[canonical_labels({"__name__": "size", "town": "Köln"})] = [(1000, 1.0)]
    command = ("series", "size", "--address", server.address, "--output", output)
    done = run_tsdb(*command, timeout_s=WITHIN_S, env={"PYTHONIOENCODING": "ascii", "LC_ALL": "C"})
    assert done.returncode == 0, done
    assert b"K\\u00f6ln" in done.stdout
    assert done.stderr == b""


class Endpoints:
    """Scraped pages by path: one with an exemplar, one whose headers never end, one that fails until `recovered`."""

    def __init__(self) -> None:
        self.recovered = threading.Event()
        self.ended = threading.Event()

    @contextlib.contextmanager
    def served(self) -> Iterator[str]:
        """The address of the server."""
        pages = {"/exemplar": self._exemplar, "/endless": self._endless, "/failing": self._failing}

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with contextlib.suppress(OSError):
                    pages[self.path](self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_port}"
            finally:
                self.ended.set()
                server.shutdown()
                thread.join()

    def _exemplar(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "application/openmetrics-text; version=1.0.0")
        handler.end_headers()
        handler.wfile.write(
            b'# TYPE hits unknown\nhits{x="1"} 3\n# TYPE all counter\nall_total 3 # {t="a"} 0.5\n# EOF\n'
        )

    def _endless(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.0 200 OK\r\nX: ")
        while not self.ended.wait(0.02):
            handler.wfile.write(b"x")

    def _failing(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200 if self.recovered.is_set() else 500)
        handler.end_headers()


def values(server: FakeServer, name: bytes, job: str) -> list[float]:
    """Values of a metric of a job, in the order of arrival."""
    return [
        value
        for labels, rows in list(server.samples.items())
        if metric_name(labels) == name and ("job", job) in parse_labels(labels)
        for _, value in list(rows)
    ]


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Look until it holds."""
    give_up_at = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < give_up_at, what
        time.sleep(0.02)  # Interval of checks; the loop's condition is the claim.


def test_one_target_of_an_agent_disturbs_no_other_and_a_signal_ends_it(server: FakeServer) -> None:
    endpoints = Endpoints()
    with endpoints.served() as url:
        targets = [part for name in ("exemplar", "endless", "failing") for part in ("--scrape", f"{name}={url}/{name}")]
        command = [*TSDB, "agent", "--address", server.address, "--interval", "200ms", "--job", "host", *targets]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as agent:
            try:
                wait_for(lambda: len(values(server, b"node_load1", "host")) >= 10, "the host is measured")
                wait_for(lambda: values(server, b"up", "endless")[:3] == [0.0] * 3, "the hanging target is down")
                wait_for(lambda: values(server, b"up", "failing")[:1] == [0.0], "the failing target is down")
                endpoints.recovered.set()
                wait_for(lambda: 1.0 in values(server, b"up", "failing"), "the failing target is back")
                agent.terminate()
                _, err = agent.communicate(timeout=WITHIN_S)
            finally:
                agent.kill()
    assert agent.returncode == 0, err
    for name in (b"hits", b"all_total"):
        assert values(server, name, "exemplar")[:2] == [3.0, 3.0]
    assert values(server, b"up", "exemplar")[:2] == [1.0, 1.0]
    lines = err.decode().splitlines()
    assert len([line for line in lines if "target down" in line and "/endless" in line]) == 1, lines
    assert len([line for line in lines if "target down" in line and "answers 500" in line]) == 1, lines
    assert len([line for line in lines if "target is back" in line and "/failing" in line]) == 1, lines
