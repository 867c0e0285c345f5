"""A call without a request, or with a malformed one, harms no other call and leaves no traceback."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import grpc
import pytest

from support.counters import sample
from support.fakes.grpc_echo import Scripted, call_raw, plain_channel, scripted_server, write
from support.servers.logs import wait_until
from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError
from tsdb.ops.auth import Tokens
from tsdb.ops.grpc import receive
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.ops.grpc.messages import MessageLimits
from tsdb.ops.grpc.receive import Receipts
from tsdb.ops.grpc.server import GrpcLimits, GrpcServer
from tsdb.ops.grpc.threads import CallThreads

WRITE = "/tsdb.v1.Ingest/Write"
LABEL_VALUES = "/tsdb.v1.Reader/LabelValues"
CHECK = "/grpc.health.v1.Health/Check"
REFLECT = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
BAD = b"\x0a\xff"  # A field that says it is longer than the message.
MIB = 1 << 20


def refusal(channel: grpc.Channel, method: str, data: bytes) -> TsdbError:
    with pytest.raises(grpc.RpcError) as caught:
        call_raw(channel, method, data)
    return from_rpc_error(caught.value)


@contextmanager
def silent_calls(server: GrpcServer, method: str, count: int) -> Iterator[None]:
    """Start calls that never send their request, on a separate connection."""
    done = threading.Event()

    def nothing() -> Iterator[bytes]:
        done.wait(60)
        yield from ()

    with ExitStack() as stack:
        channel = stack.enter_context(plain_channel(server))
        stack.callback(done.set)
        calls = [channel.stream_unary(method, bytes, bytes).future(nothing()) for _ in range(count)]
        for call in calls:
            stack.callback(call.cancel)
        yield


@pytest.mark.parametrize("method", [WRITE, CHECK, REFLECT])
def test_a_malformed_request_is_a_status_and_no_traceback(method: str, caplog: pytest.LogCaptureFixture) -> None:
    with scripted_server(Scripted()) as server, plain_channel(server) as channel:
        error = refusal(channel, method, BAD)
        assert (type(error), error.reason) == (InvalidRequest, "malformed_request")
        assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("method", [WRITE, CHECK, REFLECT])
def test_a_call_without_a_request_is_refused(method: str, caplog: pytest.LogCaptureFixture) -> None:
    with scripted_server(Scripted()) as server, plain_channel(server) as channel:
        call = channel.stream_unary(method, bytes, bytes)
        if method == REFLECT:  # The call never sends a request.
            assert list(channel.stream_stream(method, bytes, bytes)(iter(()), timeout=60)) == []
            return
        with pytest.raises(grpc.RpcError) as caught:
            call(iter(()), timeout=60)
        assert from_rpc_error(caught.value).reason == "no_message"
        assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("method", [CHECK, REFLECT])
def test_a_large_request_to_a_small_method_is_refused(method: str) -> None:
    with scripted_server(Scripted()) as server, plain_channel(server) as channel:
        data = b"\x0a" + b"\x80\x80\x40" + bytes(MIB)
        assert isinstance(refusal(channel, method, data), TsdbError)
        assert write(channel).samples == 1


def test_a_compressed_request_is_taken() -> None:
    with scripted_server(Scripted()) as server:
        address = f"127.0.0.1:{server.port}"
        with grpc.insecure_channel(address, compression=grpc.Compression.Gzip) as channel:
            assert write(channel, samples=10_000).samples == 10_000


def test_a_compressed_request_that_would_expand_past_the_limit_is_refused_by_its_size() -> None:
    with scripted_server(Scripted()) as server, plain_channel(server) as channel:
        error = refusal(channel, WRITE, gzip.compress(bytes(64 * MIB)))
        assert (type(error), error.reason) == (InvalidRequest, "message_too_large")
        assert error.metadata["got"] == str(64 * MIB)


def test_calls_that_send_nothing_do_not_lock_out_others() -> None:
    limits = GrpcLimits(running_max=2, waiting_max=2)
    before = sample("tsdb_grpc_evicted_calls_total", reason="threads")
    with scripted_server(Scripted(), limits=limits) as server, silent_calls(server, WRITE, 40):
        wait_until(lambda: sample("tsdb_grpc_receiving_requests") >= 2)
        with plain_channel(server) as channel:
            assert write(channel).samples == 1
    assert sample("tsdb_grpc_evicted_calls_total", reason="threads") > before


def test_health_checks_that_send_nothing_do_not_lock_out_others() -> None:
    with scripted_server(Scripted()) as server, silent_calls(server, CHECK, 20), plain_channel(server) as channel:
        wait_until(lambda: sample("tsdb_grpc_receiving_requests") >= 2)
        assert call_raw(channel, CHECK, b"")


def test_calls_that_send_slowly_do_not_keep_the_slots() -> None:
    limits = GrpcLimits(receive_bytes_max=4 * MIB, requests_bytes_max=16 * MIB)  # Four slots.
    before = sample("tsdb_grpc_evicted_calls_total", reason="slots")
    with scripted_server(Scripted(), limits=limits) as server, silent_calls(server, WRITE, 30):
        wait_until(lambda: sample("tsdb_grpc_receiving_requests") >= 5)
        with plain_channel(server) as channel:
            assert write(channel).samples == 1
    assert sample("tsdb_grpc_evicted_calls_total", reason="slots") > before


def test_a_stranger_is_refused_before_the_request_has_come() -> None:
    with scripted_server(Scripted(), tokens=Tokens(text="good")) as server, plain_channel(server) as channel:
        done = threading.Event()

        def nothing() -> Iterator[bytes]:
            done.wait(60.0)
            yield from ()

        try:
            with pytest.raises(grpc.RpcError) as caught:
                channel.stream_unary(WRITE, bytes, bytes)(nothing(), timeout=60)
        finally:
            done.set()
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_limits_of_a_service_are_below_those_of_the_server() -> None:
    reads = MessageLimits(bytes_max=MIB, fields_max=1000)
    with scripted_server(Scripted(), reads=reads) as server, plain_channel(server) as channel:
        for too_large in (bytes(MIB + 1), gzip.compress(bytes(MIB + 1)), b"\x12\x00" * 3000):
            error = refusal(channel, LABEL_VALUES, too_large)
            assert (type(error), error.reason) == (InvalidRequest, "message_too_large")
        assert write(channel, samples=MIB // 4).samples == MIB // 4


def test_a_connection_too_many_is_closed_and_an_idle_one_makes_room() -> None:
    limits = GrpcLimits(connections_max=1, idle_s=1.0)
    with scripted_server(Scripted(), limits=limits) as server:
        local = [("grpc.use_local_subchannel_pool", 1)]
        with (
            grpc.insecure_channel(f"127.0.0.1:{server.port}", local) as first,
            grpc.insecure_channel(f"127.0.0.1:{server.port}", local) as second,
        ):
            assert write(first).samples == 1
            with pytest.raises(grpc.RpcError) as caught:
                write(second)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            wait_until(lambda: _writes(second))


def _writes(channel: grpc.Channel) -> bool:
    try:
        return write(channel).samples == 1
    except grpc.RpcError:
        return False


class _Context:
    """A call of a connection that only notes that it was cancelled."""

    def __init__(self, peer: str = "ipv4:127.0.0.1:1") -> None:
        self.cancelled = threading.Event()
        self._peer = peer

    def peer(self) -> str:
        return self._peer

    def cancel(self) -> None:
        self.cancelled.set()

    def time_remaining(self) -> float | None:
        return None


def receive_or_evicted(receipts: Receipts, messages: Iterator[bytes], context: _Context) -> None:
    with suppress(Overloaded):
        receipts.receive(None, messages, context)  # type: ignore[arg-type]


def test_a_call_whose_request_arrives_before_its_eviction_is_handled() -> None:
    """Both calls are overdue; the request of the second one arrives while the first one is cancelled."""
    threads, second = CallThreads(4, "test"), _Context("ipv4:127.0.0.1:2")
    receipts, arrive, handled = Receipts(4, threads, timeout_s=0.0), threading.Event(), threading.Event()

    class First(_Context):
        def cancel(self) -> None:
            super().cancel()
            arrive.set()
            assert handled.wait(60.0)

    def silent(context: _Context) -> Iterator[bytes]:
        assert context.cancelled.wait(60.0)
        yield from ()

    def late() -> Iterator[bytes]:
        assert arrive.wait(60.0)
        yield from ()

    def receive_second() -> None:
        receipts.receive(None, late(), second)  # type: ignore[arg-type]
        handled.set()

    first = First()
    receiving = [threading.Thread(target=receive_or_evicted, args=(receipts, silent(first), first))]
    receiving[0].start()
    wait_until(lambda: sample("tsdb_grpc_receiving_requests") == 1)
    receiving.append(threading.Thread(target=receive_second))
    receiving[1].start()
    wait_until(lambda: sample("tsdb_grpc_receiving_requests") == 2)
    receipts.relieve()
    for thread in receiving:
        thread.join(60.0)
    assert first.cancelled.is_set()
    assert handled.is_set()
    assert not second.cancelled.is_set()
    threads.shutdown()


class _Reader:
    """Stands in for a MessageReader, and expands each request until `end`."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.expanding, self.end = threading.Event(), threading.Event()

    def take(self, data: bytes) -> None:
        self.taken.append(data)
        self.expanding.set()
        assert self.end.wait(60.0)


def test_a_call_whose_request_is_expanded_is_not_cancelled() -> None:
    """Compressed requests wait for each other. The wait is the server's, so it makes no sender a slow one."""
    threads, context, reader = CallThreads(4, "test"), _Context(), _Reader()
    receipts = Receipts(4, threads, timeout_s=0.0)
    receiving = threading.Thread(target=receipts.receive, args=(reader, iter([b"x"]), context))
    receiving.start()
    assert reader.expanding.wait(60.0)
    receipts.relieve()
    assert not context.cancelled.is_set()
    reader.end.set()
    receiving.join(60.0)
    threads.shutdown()


def test_a_request_of_a_cancelled_call_is_not_expanded() -> None:
    threads, context, reader = CallThreads(4, "test"), _Context(), _Reader()
    receipts = Receipts(4, threads, timeout_s=0.0)
    reader.end.set()

    def late() -> Iterator[bytes]:
        assert context.cancelled.wait(60.0)
        yield b"x"

    def receive_late() -> None:
        with suppress(Overloaded):
            receipts.receive(reader, late(), context)  # type: ignore[arg-type]

    receiving = threading.Thread(target=receive_late)
    receiving.start()
    wait_until(lambda: sample("tsdb_grpc_receiving_requests") == 1)
    receipts.relieve()
    receiving.join(60.0)
    assert context.cancelled.is_set()
    assert not reader.taken
    threads.shutdown()


def test_a_call_past_the_timeout_is_cancelled_without_pressure() -> None:
    threads, context = CallThreads(4, "test"), _Context()
    receipts = Receipts(4, threads, timeout_s=0.05)

    def messages() -> Iterator[bytes]:
        assert context.cancelled.wait(60.0)
        yield from ()

    receiving = threading.Thread(target=receive_or_evicted, args=(receipts, messages(), context))
    receiving.start()
    give_up_at = time.monotonic() + 60
    while not context.cancelled.wait(0.01):
        assert time.monotonic() < give_up_at
        receipts.relieve()
    receiving.join(60.0)
    assert not receiving.is_alive()
    threads.shutdown()


def test_a_connection_that_receives_nothing_else_goes_before_one_with_many_large_requests() -> None:
    threads, arrived, received = CallThreads(4, "test"), threading.Event(), threading.Event()
    receipts = Receipts(4, threads)

    def large() -> Iterator[bytes]:
        assert arrived.wait(60.0)
        yield from ()

    def small() -> Iterator[bytes]:
        received.set()
        yield from ()

    calls = [(large(), _Context()) for _ in range(20)]
    receiving = [threading.Thread(target=receipts.receive, args=(None, *call)) for call in calls]
    for thread in receiving:
        thread.start()
    wait_until(lambda: sample("tsdb_grpc_receiving_requests") == 20)
    other = threading.Thread(target=receipts.receive, args=(None, small(), _Context("ipv4:127.0.0.1:2")))
    other.start()
    assert received.wait(60.0), "no slot while a connection receives 20 large requests"
    arrived.set()
    for thread in (*receiving, other):
        thread.join(60.0)
    assert sample("tsdb_grpc_receiving_requests") == 0
    threads.shutdown()


@pytest.mark.parametrize("others", [0, 1000])
def test_a_slow_call_is_cancelled_for_one_that_waits_unless_requests_arrive_fast(
    others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive, "PATIENCE_S", 0.0)
    threads, arrived = CallThreads(4, "test"), threading.Event()
    receipts = Receipts(1, threads)

    def messages() -> Iterator[bytes]:
        assert arrived.wait(60.0)
        yield from ()

    for _ in range(others):
        receipts.receive(None, iter(()), _Context())  # type: ignore[arg-type]
    slow = _Context("ipv4:127.0.0.1:2")
    calls = [(messages(), slow), (messages(), _Context("ipv4:127.0.0.1:3"))]
    receiving = [threading.Thread(target=receive_or_evicted, args=(receipts, *call)) for call in calls]
    receiving[0].start()
    wait_until(lambda: sample("tsdb_grpc_receiving_requests") == 1)
    receiving[1].start()
    wait_until(lambda: sample("tsdb_grpc_receiving_requests") == 2)
    receipts.relieve()
    assert slow.cancelled.is_set() == (others == 0)
    arrived.set()
    for thread in receiving:
        thread.join(60.0)
    threads.shutdown()
