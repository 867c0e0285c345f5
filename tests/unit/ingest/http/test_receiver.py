"""The HTTP receiver: whatever comes, the answer has the right status, and no memory stays reserved."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import re
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

import cramjam
import numpy as np
import pytest
import zstandard

import ingest.http.receiver as receiver_module
from ingest.bucket_memory import MustWait
from ingest.http.expand import ENCODINGS
from ingest.http.protocol import Decoded, Outcome, WriteCall, WriteProtocol, text_answer
from ingest.http.receiver import LOOP_BYTES_MAX, SLOW_S, HttpReceiver, ReceiverLimits
from ingest.pipeline import AcceptedWrite
from ingest.refusals import Offender
from ingest.rows import Rows
from support.counters import sample
from support.servers.logs import wait_until
from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError, Unavailable
from tsdb.model.family import Family
from tsdb.ops.auth import Tokens
from tsdb.ops.byte_budget import RequestBytes
from tsdb.ops.health import Liveness, Readiness
from tsdb.ops.http.bodies import HttpAnswer
from tsdb.ops.http.connections import HttpLimits
from tsdb.ops.http.server import OpsServer, serve_ops
from tsdb.ops.lifecycle import Deadline

BYTES_MAX = 64 << 10
# The time of compression is left out, so that names and bytes of the cases are the same in each process.
gz = partial(gzip.compress, mtime=0)


def ids(value: object) -> str | None:
    """Bodies are no names of tests."""
    return "body" if isinstance(value, bytes) else None


def decode(call: WriteCall) -> Decoded:
    """Decodes a line of numbers, each into a row with one sample. `bad` is refused, `bug` fails, 7 has to wait."""
    if call.body == b"7" and not call.may_wait:
        raise MustWait
    if call.body.startswith(b"bad"):
        raise InvalidRequest("byte 0 is no number", reason="malformed_request")
    assert not call.body.startswith(b"bug")
    values = np.array([float(number) for number in call.body.split()])
    label, size = b"__name__\xffm", len(values)
    starts = np.arange(size + 1)
    joined = np.frombuffer(label * size, np.uint8)
    return Decoded(Rows(joined, starts * len(label), starts, np.zeros(size, np.int64), values), [Family("m")])


def answer(call: WriteCall, outcome: Outcome) -> HttpAnswer:
    return HttpAnswer(204, content_type="") if outcome.error is None else text_answer(outcome.error)


NUMBERS = WriteProtocol(
    "numbers", ("/numbers",), frozenset({"", "text/plain"}), ENCODINGS | {"", "identity"}, decode, answer
)


@dataclass
class FakePipeline:
    """Answers at once unless `held`; `error` is its answer. work_s: CPU time of a request. threads: their names."""

    error: TsdbError | None = None
    refused: int = 0
    held: bool = False
    futures: list[Future[AcceptedWrite]] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    work_s: float = 0.0
    threads: list[str] = field(default_factory=list)

    def submit(self, rows: Rows, partial: bool, deadline: Deadline) -> Future[AcceptedWrite]:
        assert partial
        assert 0 < deadline.remaining() <= 30
        self.values += rows.values.tolist()
        self.threads.append(threading.current_thread().name)
        until_s = time.thread_time() + self.work_s
        while time.thread_time() < until_s:
            pass
        future: Future[AcceptedWrite] = Future()
        self.futures.append(future)
        if not self.held:
            self.finish(future)
        return future

    def finish(self, future: Future[AcceptedWrite]) -> None:
        if self.error is not None:
            future.set_exception(self.error)
            return
        offenders = [Offender(0, "too_old", "timestamp 5 is too old")] * self.refused
        refused = {"too_old": self.refused} if self.refused else {}
        future.set_result(AcceptedWrite([], len(self.values) - self.refused, refused, self.refused, offenders))


@dataclass
class Served:
    """A server with the receiver."""

    server: OpsServer
    held: RequestBytes

    def send(
        self, body: bytes, path: str = "/numbers", method: str = "POST", **headers: str
    ) -> tuple[int, bytes, dict[str, str]]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)) as connection:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            got = connection.getresponse()
            return got.status, got.read(), dict(got.getheaders())

    def raw(self, data: bytes, *, until_closed: bool = True) -> bytes:
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as connection:
            received = b""
            with contextlib.suppress(ConnectionError):
                connection.sendall(data)
            with contextlib.suppress(ConnectionError):
                while until_closed and (piece := connection.recv(65_536)):
                    received += piece
            return received


@contextlib.contextmanager
def served(
    pipeline: FakePipeline, *, tokens: Tokens | None = None, limits: HttpLimits | None = None, held: int = 1 << 20
) -> Iterator[Served]:
    memory = RequestBytes(held)
    receiver = HttpReceiver([NUMBERS], pipeline.submit, lambda _: None, memory, ReceiverLimits(BYTES_MAX))
    receiver.start()
    before = sample("tsdb_request_bytes")
    with serve_ops("127.0.0.1", 0, Readiness, Liveness, bodies=receiver, tokens=tokens, limits=limits) as server:
        yield Served(server, memory)
        wait_until(lambda: sample("tsdb_request_bytes") == before)
    receiver.close()
    assert receiver.join(60.0)


def test_a_request_is_answered_after_the_log_and_not_before() -> None:
    pipeline = FakePipeline(held=True)
    with served(pipeline) as one, socket.create_connection(("127.0.0.1", one.server.port)) as connection:
        connection.sendall(b"POST /numbers HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\n1 2")
        wait_until(lambda: len(pipeline.futures) == 1)
        connection.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.recv(100)
        pipeline.finish(pipeline.futures[0])
        connection.settimeout(60.0)
        assert connection.recv(100).startswith(b"HTTP/1.1 204 No Content\r\n")
    assert pipeline.values == [1.0, 2.0]


LOOP, QUEUE = "ops-http", "http-write-"
LARGE = b"1 " * LOOP_BYTES_MAX


@pytest.mark.parametrize(
    ("thread", "encoding", "body"),
    [
        (LOOP, "", b"1 2 3"),
        (LOOP, "zstd", zstandard.compress(b"1 2 3")),
        (QUEUE, "gzip", gz(b"7")),
        (QUEUE, "", LARGE),
        (QUEUE, "gzip", gz(LARGE)),
        (QUEUE, "zstd", zstandard.compress(LARGE)),
        (QUEUE, "snappy", bytes(cramjam.snappy.compress_raw(LARGE))),
    ],
    ids=ids,
)
def test_the_loop_runs_small_requests_and_queues_large_ones_and_those_that_wait(
    thread: str, encoding: str, body: bytes
) -> None:
    pipeline = FakePipeline()
    with served(pipeline) as one:
        assert one.send(body, **({"content_encoding": encoding} if encoding else {}))[0] == 204
    (name,) = pipeline.threads
    assert name.startswith(thread)
    assert len(pipeline.values) in (1, 3, LOOP_BYTES_MAX)


@pytest.mark.parametrize(("share", "thread"), [(1e6, QUEUE), (0, LOOP)])
def test_after_a_slow_request_the_loop_queues_small_ones_for_a_while(
    monkeypatch: pytest.MonkeyPatch, share: float, thread: str
) -> None:
    monkeypatch.setattr(receiver_module, "REST_SHARE", share)
    pipeline = FakePipeline(work_s=2 * SLOW_S)
    with served(pipeline) as one:
        for body in (b"1", b"2"):
            assert one.send(body)[0] == 204
    first, second = pipeline.threads
    assert first == LOOP
    assert second.startswith(thread)


def test_a_request_is_counted_once_wherever_it_runs() -> None:
    before = sample("tsdb_ingest_protocol_requests_total", protocol="numbers")
    with served(FakePipeline()) as one:
        for body, status in ((b"1", 204), (LARGE, 204), (gz(LARGE), 204), (b"bad", 400), (b"bug", 500)):
            assert one.send(body, **({"content_encoding": "gzip"} if body[:2] == b"\x1f\x8b" else {}))[0] == status
        assert one.send(gz(LARGE)[:-9], content_encoding="gzip")[0] in (400, 413)
    assert sample("tsdb_ingest_protocol_requests_total", protocol="numbers") - before == 6


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("", b"1 2 3"),
        ("identity", b"1 2 3"),
        ("gzip", gz(b"1 2 3")),
        ("gzip", gz(b"1 2") + gz(b" 3")),
        ("zstd", zstandard.compress(b"1 2 3")),
        ("snappy", bytes(cramjam.snappy.compress_raw(b"1 2 3"))),
    ],
    ids=ids,
)
def test_every_encoding_is_expanded(encoding: str, body: bytes) -> None:
    pipeline = FakePipeline()
    with served(pipeline) as one:
        headers = {"content_encoding": encoding} if encoding else {}
        assert one.send(body, **headers)[0] == 204
        assert pipeline.values == [1.0, 2.0, 3.0]


STREAMED = zstandard.ZstdCompressor(write_content_size=False)


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (415, {"content_encoding": "br"}, b"1"),
        (415, {"content_type": "application/json"}, b"1"),
        (400, {}, b"bad"),
        (500, {}, b"bug"),
        (413, {}, b"1" * (BYTES_MAX + 1)),
        (400, {"content_encoding": "gzip"}, b"1"),
        (400, {"content_encoding": "gzip"}, gz(b"1 2 3")[:-9] + b"\0" * 9),
        (400, {"content_encoding": "gzip"}, gz(b"1 2 3")[:-4] + b"\1\0\0\0"),
        (400, {"content_encoding": "gzip"}, gz(b"1 2 3") + b"trailing garbage" + bytes(4)),
        (413, {"content_encoding": "gzip"}, gz(b"1" * (BYTES_MAX + 1))),
        (413, {"content_encoding": "gzip"}, gz(b"1" * BYTES_MAX) + gz(b"1")),
        (413, {"content_encoding": "zstd"}, zstandard.compress(b"1" * (BYTES_MAX + 1))),
        (413, {"content_encoding": "zstd"}, STREAMED.compress(b"1" * (BYTES_MAX + 1))),
        (400, {"content_encoding": "zstd"}, b"no zstd"),
        (400, {"content_encoding": "zstd"}, zstandard.compress(b"1 2 3" * 100)[:-3]),
        (413, {"content_encoding": "snappy"}, bytes(cramjam.snappy.compress_raw(b"1" * (BYTES_MAX + 1)))),
        (400, {"content_encoding": "snappy"}, b"\xff\xff\x03rest"),
        (400, {"content_encoding": "snappy"}, b"\xff" * 20),
        (400, {"content_encoding": "snappy"}, b"\x05\x0c1 2 3"),
        (400, {"content_encoding": "snappy"}, b""),
    ],
    ids=ids,
)
def test_bad_bodies_are_refused_with_their_status(status: int, headers: dict[str, str], body: bytes) -> None:
    pipeline = FakePipeline()
    with served(pipeline) as one:
        got, text, _ = one.send(body, **headers)
        assert (got, bool(text)) == (status, True), text
        assert one.send(b"1")[0] == 204
    assert pipeline.values == [1.0]


def test_a_wrong_method_is_405_and_an_unknown_path_404() -> None:
    with served(FakePipeline()) as one:
        status, _, headers = one.send(b"", method="GET")
        assert (status, headers["allow"]) == (405, "OPTIONS, POST")
        status, _, headers = one.send(b"", method="OPTIONS")
        assert (status, headers["allow"]) == (204, "OPTIONS, POST")
        assert one.send(b"", path="/number")[0] == 404


@pytest.mark.parametrize(
    ("error", "status", "retry_after"),
    [
        (Unavailable("the log is away", reason="unavailable", retry_after_s=0.2), 503, "1"),
        (Overloaded("full", reason="queue_full", retry_after_s=3.5), 503, "4"),
        (Overloaded("full", reason="token_samples_limit", retry_after_s=29.1), 429, "30"),
        (InvalidRequest("full", reason="source_series_limit"), 400, None),
        (InvalidRequest("bad", reason="too_many_samples"), 413, None),
    ],
)
def test_errors_of_the_pipeline_have_their_status(error: TsdbError, status: int, retry_after: str | None) -> None:
    with served(FakePipeline(error)) as one:
        got, text, headers = one.send(b"1")
        assert (got, headers.get("retry-after"), text.decode().strip()) == (status, retry_after, error.message)


def test_a_partly_refused_request_is_400_and_lists_the_offenders() -> None:
    with served(FakePipeline(refused=1)) as one:
        status, text, _ = one.send(b"1 2")
    assert status == 400
    assert b"the other 1 samples are stored" in text
    assert b"timestamp 5 is too old" in text


@pytest.mark.parametrize("path", ["/numbers/", "//numbers", "//numbers//"])
def test_slashes_too_many_in_a_configured_url_are_ignored(path: str) -> None:
    pipeline = FakePipeline()
    with served(pipeline) as one:
        assert one.send(b"1", path=path)[0] == 204
    assert pipeline.values == [1.0]


def test_a_write_without_the_length_of_its_body_is_refused() -> None:
    pipeline = FakePipeline()
    with served(pipeline) as one:
        answers = one.raw(b"POST /numbers HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n1 2 3")
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"411"]
    assert pipeline.values == []


SIMPLE_TYPES = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "")


@pytest.mark.parametrize("content_type", SIMPLE_TYPES)
@pytest.mark.parametrize(
    "page",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec_fetch_site": "cross-site", "sec_fetch_mode": "navigate"},
        {"sec_fetch_site": "same-site"},
        {"referer": "http://evil.example/page"},
        {"host": "evil.example:7411", "origin": "http://evil.example:7411"},
        {"host": "evil.example:7411"},
    ],
    ids=lambda page: " ".join(page.values()),
)
def test_a_web_page_of_another_origin_writes_nothing(page: dict[str, str], content_type: str) -> None:
    pipeline = FakePipeline()
    with served(pipeline) as one:
        types = {"content_type": content_type} if content_type else {}
        status, text, _ = one.send(b"1", **types, **page)
    assert (status, pipeline.values) == (415 if content_type not in ("", "text/plain") else 403, [])
    assert b"cors_origin" in text or b"http_hosts" in text or status == 415


def test_the_token_is_required() -> None:
    pipeline = FakePipeline()
    with served(pipeline, tokens=Tokens(text="good")) as one:
        assert one.send(b"1")[0] == 401
        assert one.send(b"1", authorization="Bearer wrong")[0] == 401
        assert one.send(b"1", authorization="Bearer good")[0] == 204
        assert one.send(b"", path="/-/ready", method="GET")[0] == 200
    assert pipeline.values == [1.0]


def test_a_chunked_body_is_whole_and_bounded() -> None:
    pipeline = FakePipeline()
    head = b"POST /numbers HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
    with served(pipeline) as one:
        assert one.raw(head + b"2\r\n1 \r\n1\r\n2\r\n0\r\n\r\n").startswith(b"HTTP/1.1 204")
        chunk = b"2000\r\n" + b"1" * 0x2000 + b"\r\n"
        assert one.raw(head + chunk * 9 + b"0\r\n\r\n").startswith(b"HTTP/1.1 413")
    assert pipeline.values == [1.0, 2.0]


def test_a_trailer_without_end_is_refused() -> None:
    head = b"POST /numbers HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    with served(FakePipeline()) as one:
        answers = one.raw(head + b"1\r\n1\r\n0\r\nx: " + b"y" * (600 << 10))
    assert answers.startswith(b"HTTP/1.1 400")


def test_pipelined_requests_are_answered_in_order() -> None:
    request = b"POST /numbers HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n"
    last = b"GET /-/ready HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    with served(FakePipeline()) as one:
        answers = one.raw(request + b"1" + request + b"b" + last)
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"204", b"500", b"200"]


def test_a_client_that_leaves_half_way_costs_nothing() -> None:
    pipeline = FakePipeline()
    with served(pipeline) as one:
        before = sample("tsdb_request_bytes")
        with socket.create_connection(("127.0.0.1", one.server.port)) as connection:
            connection.sendall(b"POST /numbers HTTP/1.1\r\nhost: x\r\ncontent-length: 30000\r\n\r\n" + b"1" * 20_000)
            wait_until(lambda: sample("tsdb_request_bytes") > before + 20_000)
        wait_until(lambda: sample("tsdb_request_bytes") == before)
    assert pipeline.futures == []


def test_a_client_that_leaves_before_its_answer_frees_its_memory() -> None:
    pipeline = FakePipeline(held=True)
    with served(pipeline) as one:
        one.raw(b"POST /numbers HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\n1", until_closed=False)
        wait_until(lambda: len(pipeline.futures) == 1)
        pipeline.finish(pipeline.futures[0])


def test_a_body_that_trickles_is_cut_off_in_time() -> None:
    before = sample("tsdb_http_connections_closed_total", reason="body_timeout")
    with served(FakePipeline(), limits=HttpLimits(body_timeout_s=0.3)) as one:
        head = b"POST /numbers HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n1"
        assert one.raw(head) == b""
    assert sample("tsdb_http_connections_closed_total", reason="body_timeout") == before + 1


def test_bytes_are_reserved_before_they_are_read() -> None:
    with served(FakePipeline(), held=192 << 10) as one, contextlib.ExitStack() as stack:
        head = b"POST /numbers HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n"
        for _ in range(2):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", one.server.port)))
            connection.sendall(head + b"1" * 40_000)
        wait_until(lambda: sample("tsdb_request_bytes") > 70_000)
        status, text, headers = one.send(b"1" * 50_000)
        assert (status, headers["retry-after"]) == (503, "1"), text
        assert one.send(b"", path="/-/ready", method="GET")[0] == 200


def test_an_expected_continue_is_sent_only_for_an_accepted_body() -> None:
    head = (
        b"POST /numbers HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    )
    with served(FakePipeline()) as one:
        assert one.raw(head % 1 + b"1").startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204")
        assert one.raw(head % (BYTES_MAX + 1)).startswith(b"HTTP/1.1 413")
