"""A read ends with its caller and with the server's own time, also in the middle of a regular expression."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from support.counters import sample
from support.data.heads import Record, apply, register
from support.data.long_values import SLOW_PATTERN, head_of_long_values
from support.servers.logs import wait_until
from support.servers.queriers import TOPIC_ID, Context, ServedHeads, one_store, querier_over
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Overloaded, Unavailable
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.server import GrpcService, build_server
from tsdb.reader.read_call import ReadCall, ReadCalls
from tsdb.v1 import common_pb2, reader_pb2, reader_pb2_grpc

WITHIN_S = 10.0


def test_a_read_has_the_sooner_of_both_times_left() -> None:
    clock = ManualClock()
    call = ReadCall(Context(5.0), 60.0, clock.monotonic)
    assert call.time_remaining() == 5.0
    clock.advance(57_000)
    assert call.time_remaining() == pytest.approx(3.0)


def test_a_read_past_the_servers_time_is_refused_naming_the_limit_and_not_worth_repeating() -> None:
    clock = ManualClock()
    call = ReadCall(Context(), 60.0, clock.monotonic)
    call.check_going()
    clock.advance(60_001)
    with pytest.raises(Overloaded, match=r"over 60 s, which is the limit \(read_timeout_s\): ask for") as error:
        call.check_going()
    assert (error.value.reason, error.value.retry_after_s) == ("read_timeout", None)


def test_a_read_whose_caller_left_ends() -> None:
    caller = Context()
    call = ReadCall(caller, 60.0)
    caller.leave()
    with pytest.raises(Unavailable) as error:
        call.check_going()
    assert error.value.reason == "cancelled"


def test_a_stores_call_ended_by_this_servers_limit_is_a_read_timeout() -> None:
    with pytest.raises(Overloaded) as error, ReadCalls(0.01).of(Context()):
        raise Unavailable("Deadline Exceeded", reason="deadline")
    assert error.value.reason == "read_timeout"
    with pytest.raises(Unavailable), ReadCalls(60.0).of(Context()):
        raise Unavailable("Deadline Exceeded", reason="deadline")


@contextmanager
def served(role: str, timeout_s: float) -> Iterator[Any]:
    """The Reader of a store, or of a querier over one, whose label values keep a bad pattern busy for 15 s."""
    head = head_of_long_values(1_500)
    register(head, [0])
    apply(head, [Record(offset, 0, ((0, offset, 0.0),)) for offset in range(2)])
    heads = ServedHeads({0: head}, calls=ReadCalls(timeout_s))
    heads.catch_up()
    servicer: Any = heads.service
    if role == "querier":
        servicer = querier_over(one_store(heads), None, window_ms=1, calls=ReadCalls(timeout_s))
    service = GrpcService("tsdb.v1.Reader", servicer, reader_pb2_grpc.add_ReaderServicer_to_server)
    with (
        build_server([service], host="127.0.0.1", port=0, health=Health()) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield reader_pb2_grpc.ReaderStub(channel)


def calls(stub: Any) -> dict[str, Any]:
    """Each kind of read, with an invalid pattern."""
    matchers = [common_pb2.Matcher(type=common_pb2.Matcher.REGEX, name="long", value=SLOW_PATTERN)]
    watch = reader_pb2.WatchRequest(matchers=matchers)
    # The token is from before the newest record, so the samples of that record are selected at once.
    getattr(watch, "from").add(topic_id=TOPIC_ID, partition=0, record_offset=0)
    return {
        "Select": lambda **how: list(
            stub.Select(
                reader_pb2.SelectRequest(matchers=matchers, start_ms=0, end_ms=1, encoding=reader_pb2.RAW), **how
            )
        ),
        "Series": lambda **how: list(stub.Series(reader_pb2.SeriesRequest(matchers=matchers), **how)),
        "LabelNames": lambda **how: stub.LabelNames(reader_pb2.LabelNamesRequest(matchers=matchers), **how),
        "LabelValues": lambda **how: stub.LabelValues(
            reader_pb2.LabelValuesRequest(matchers=matchers, name="long"), **how
        ),
        "Watch": lambda **how: list(stub.Watch(watch, **how)),
    }


@pytest.mark.slow
@pytest.mark.parametrize("role", ["store", "querier"])
def test_a_regular_expression_ends_with_the_servers_time_in_every_kind_of_read(role: str) -> None:
    with served(role, 0.1) as stub:
        for kind, call in calls(stub).items():
            with pytest.raises(grpc.RpcError) as caught:
                call(timeout=WITHIN_S)
            error = from_rpc_error(caught.value)
            assert isinstance(error, Overloaded), (kind, error)
            assert error.reason == "read_timeout"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "kind"), [("store", "Select"), ("store", "LabelNames"), ("store", "Watch"), ("querier", "Watch")]
)
def test_a_regular_expression_ends_soon_after_its_caller_has_gone(role: str, kind: str) -> None:
    with served(role, 600.0) as stub:
        before = sample("tsdb_reads_abandoned_total", reason="cancelled")
        with pytest.raises(grpc.RpcError):
            calls(stub)[kind](timeout=0.3)
        wait_until(lambda: sample("tsdb_reads_abandoned_total", reason="cancelled") == before + 1, WITHIN_S)
