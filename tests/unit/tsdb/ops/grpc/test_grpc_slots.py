"""Slots of a gRPC server: calls that wait do not keep others from running, and no connection takes all."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import pytest

from support.counters import sample
from support.fakes.grpc_echo import Scripted, plain_channel, scripted_server, write
from support.servers.logs import wait_until
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Overloaded
from tsdb.ops.grpc import slots as slots_module
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.ops.grpc.server import GrpcLimits, GrpcServer
from tsdb.ops.grpc.slots import RECENT_S, CallSlots, step_aside, waiting
from tsdb.v1 import reader_pb2, reader_pb2_grpc

WITHIN_S = 60.0
MESSAGE_BYTES = 1 << 20  # The transport reads fewer bytes ahead of a reader.


def refusal(error: pytest.ExceptionInfo[Overloaded]) -> tuple[str, str]:
    return error.value.reason, error.value.metadata["limit"]


class TestPatience:
    def test_a_short_call_waits_for_a_slot_and_leaves_a_quarter_to_others(self) -> None:
        slots = CallSlots(4, 4)
        entered = threading.Event()

        def fourth() -> None:
            with slots.enter_patiently("a"):
                entered.set()

        with ExitStack() as three:
            for _ in range(3):
                three.enter_context(slots.enter_patiently("a"))
            waits = threading.Thread(target=fourth)
            waits.start()
            with slots.enter("b"):
                assert not entered.is_set()
        assert entered.wait(WITHIN_S)
        waits.join()

    def test_its_wait_has_an_end(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(slots_module, "ENTER_WITHIN_S", 0.01)
        slots = CallSlots(1, 2)
        with slots.enter_patiently("a"), pytest.raises(Overloaded, match="1 calls are running; limit is 1") as error:
            slots.enter_patiently("b")
        assert refusal(error) == ("concurrent_requests", "1")

    def test_a_call_that_stepped_aside_lets_another_run_until_the_waiting_slots_are_taken(self) -> None:
        slots = CallSlots(1, 2)
        with ExitStack() as aside:
            aside.enter_context(slots.enter("a"))
            step_aside()
            aside.enter_context(slots.enter("a"))
            step_aside()  # One connection has half of the waiting slots: the call stays where it is.
            with pytest.raises(Overloaded):
                slots.enter("b")
        with slots.enter("b"):
            pass


class TestShares:
    def test_more_calls_than_may_run_are_refused_until_one_ends(self) -> None:
        slots = CallSlots(2, 2)
        with slots.enter("a"):
            with slots.enter("a"), pytest.raises(Overloaded, match=r"2 calls are running; limit is 2") as error:
                slots.enter("b")
            assert refusal(error) == ("concurrent_requests", "2")
            with slots.enter("b"):
                pass

    def test_a_connection_alone_may_have_all_slots_and_beside_another_half(self) -> None:
        clock = ManualClock()
        slots = CallSlots(4, 4, monotonic=clock.monotonic)
        with ExitStack() as alone:
            for _ in range(4):
                alone.enter_context(slots.enter("a"))
        with slots.enter("b"):
            pass
        with ExitStack() as beside:
            for _ in range(2):
                beside.enter_context(slots.enter("a"))
            with pytest.raises(Overloaded) as error:
                slots.enter("a")
            assert refusal(error) == ("connection_requests", "2")
            beside.enter_context(slots.enter("b"))
            clock.advance(round(RECENT_S * 1000) + 1)
            beside.enter_context(slots.enter("a"))

    def test_a_call_that_waits_leaves_its_running_slot_to_another(self) -> None:
        slots = CallSlots(1, 2)
        with slots.enter("a"), waiting():
            assert ended_elsewhere(slots, "b") == ""

    def test_a_connection_has_half_of_the_waiting_slots_and_the_refusal_names_the_limit(self) -> None:
        slots = CallSlots(8, 4)
        with ExitStack() as stack:
            for _ in range(2):
                assert slots.try_aside(stack.enter_context(slots.enter("a")))
            with pytest.raises(
                Overloaded, match=r"2 calls of this connection wait; limit is 2 \(grpc_waiting_max"
            ) as e:
                slots.step_aside(stack.enter_context(slots.enter("a")))
            assert refusal(e) == ("waiting_requests", "2")
            for _ in range(2):
                assert slots.try_aside(stack.enter_context(slots.enter("b")))
            assert not slots.try_aside(stack.enter_context(slots.enter("c")))

    def test_slots_are_whole_again_after_calls_that_waited_and_failed(self) -> None:
        slots = CallSlots(1, 2)
        for _ in range(3):
            with pytest.raises(KeyError), slots.enter("a"), waiting():
                raise KeyError
        with slots.enter("a") as first, ExitStack() as stack:
            assert slots.try_aside(first)
            assert not slots.try_aside(stack.enter_context(slots.enter("a"))), "its share is one"


def ended_elsewhere(slots: CallSlots, peer: str) -> str:
    """The reason why a call on another thread was refused; empty when it ran."""
    reasons: list[str] = []

    def call() -> None:
        try:
            with slots.enter(peer):
                reasons.append("")
        except Overloaded as error:
            reasons.append(error.reason)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(WITHIN_S)
    return reasons[0]


@contextmanager
def unread(server: GrpcServer, count: int) -> Iterator[list[Any]]:
    """Open streams over one connection and read only the first message of each."""
    with plain_channel(server) as channel:
        stub: Any = reader_pb2_grpc.ReaderStub(channel)
        streams = [stub.Watch(reader_pb2.WatchRequest()) for _ in range(count)]
        try:
            yield streams
        finally:
            for stream in streams:
                stream.cancel()


SEND_S = 1.0


def is_read_to_the_end(server: GrpcServer) -> bool:
    """Whether an answer that is read slowly goes on for twice the send timeout. False after a long pause of this
    process: then the server is right to cut it."""
    with unread(server, 1) as streams:
        began = read_at = time.monotonic()
        while read_at - began < 2 * SEND_S:
            threading.Event().wait(SEND_S / 20)
            try:
                next(streams[0])
            except grpc.RpcError:
                assert time.monotonic() - read_at > SEND_S / 2, "cut although it was read"
                return False
            read_at = time.monotonic()
    return True


class TestUnreadAnswers:
    def test_an_answer_that_is_not_read_for_the_send_timeout_is_cut(self) -> None:
        ended = threading.Event()
        servicer = Scripted(lambda context: assert_(context.add_callback(ended.set)), lambda: True, MESSAGE_BYTES)
        limits = GrpcLimits(send_timeout_s=0.5)
        before = sample("tsdb_grpc_unread_answers_cut_total", reason="send_timeout")
        with scripted_server(servicer, limits=limits) as server, unread(server, 1) as streams:
            next(streams[0])
            assert ended.wait(WITHIN_S), "the call of a reader that does not read goes on"
            with pytest.raises(grpc.RpcError):
                for _ in streams[0]:
                    pass
        assert sample("tsdb_grpc_unread_answers_cut_total", reason="send_timeout") == before + 1

    def test_an_answer_of_one_message_that_is_not_read_is_cut_too(self) -> None:
        servicer = Scripted(watch_bytes=32 * MESSAGE_BYTES)
        before = sample("tsdb_grpc_unread_answers_cut_total", reason="send_timeout")
        limits = GrpcLimits(send_timeout_s=0.5)
        with scripted_server(servicer, limits=limits) as server, plain_channel(server) as channel:
            # The message of a stream is read only on demand.
            call: Any = channel.unary_stream("/tsdb.v1.Reader/LabelValues", bytes, bytes)
            unread_call = call(b"")
            wait_until(
                lambda: sample("tsdb_grpc_unread_answers_cut_total", reason="send_timeout") == before + 1, WITHIN_S
            )
            unread_call.cancel()

    def test_a_server_that_ends_does_not_wait_for_readers_that_do_not_read(self) -> None:
        servicer = Scripted(watch_on=lambda: True, watch_bytes=MESSAGE_BYTES)
        with scripted_server(servicer, limits=GrpcLimits(send_timeout_s=600.0)) as server, unread(server, 2) as streams:
            for stream in streams:
                next(stream)
            server.close()
            assert server.join(WITHIN_S)

    def test_a_slow_reader_is_not_cut_while_it_reads(self) -> None:
        servicer = Scripted(watch_on=lambda: True, watch_bytes=MESSAGE_BYTES)
        with scripted_server(servicer, limits=GrpcLimits(send_timeout_s=SEND_S)) as server:
            wait_until(lambda: is_read_to_the_end(server))

    def test_as_many_unread_answers_as_calls_may_run_do_not_lock_others_out(self) -> None:
        servicer = Scripted(watch_on=lambda: True, watch_bytes=MESSAGE_BYTES)
        limits = GrpcLimits(running_max=4, waiting_max=16)
        with (
            scripted_server(servicer, limits=limits) as server,
            plain_channel(server) as other,
            unread(server, 4) as streams,
        ):
            for stream in streams:
                next(stream)
            wait_until(lambda: answers(other), WITHIN_S)

    def test_unread_answers_beyond_a_connections_share_push_out_the_oldest(self) -> None:
        servicer = Scripted(watch_on=lambda: True, watch_bytes=MESSAGE_BYTES)
        limits = GrpcLimits(running_max=4, waiting_max=4)

        def pushed_out() -> float:
            return sample("tsdb_grpc_unread_answers_cut_total", reason="waiting_requests")

        before = pushed_out()
        with scripted_server(servicer, limits=limits) as server, unread(server, 4) as streams:
            for stream in streams:
                next(stream)
            wait_until(lambda: pushed_out() == before + 2, WITHIN_S)


def answers(channel: grpc.Channel) -> bool:
    try:
        write(channel)
    except grpc.RpcError as rpc_error:
        refused = from_rpc_error(rpc_error)
        assert isinstance(refused, Overloaded), refused
        return False
    return True


def assert_(value: bool) -> None:
    assert value


def test_a_method_without_a_slot_is_answered_while_all_calls_run() -> None:
    release, entered = threading.Event(), threading.Semaphore(0)

    def hold(_context: grpc.ServicerContext) -> None:
        entered.release()
        assert release.wait(WITHIN_S)

    with scripted_server(Scripted(hold), limits=GrpcLimits(running_max=2)) as server, plain_channel(server) as channel:
        callers = [threading.Thread(target=write, args=(channel,)) for _ in range(2)]
        for caller in callers:
            caller.start()
        for _ in callers:
            assert entered.acquire(timeout=WITHIN_S)
        stub: Any = reader_pb2_grpc.ReaderStub(channel)
        try:
            assert not answers(channel)
            stub.Coverage(reader_pb2.CoverageRequest(), timeout=WITHIN_S)
        finally:
            release.set()
            for caller in callers:
                caller.join(WITHIN_S)
