"""Reads that wait for a token use separate slots: other reads run, and Coverage always answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from support.data.heads import Record, apply, new_head
from support.servers.logs import wait_until
from support.servers.queriers import TOPIC_ID, ServedHeads, one_store, querier_over
from tsdb.model.errors import Overloaded
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.server import GrpcLimits, GrpcService, build_server
from tsdb.v1 import common_pb2, reader_pb2, reader_pb2_grpc

RUNNING_MAX = 4
FAR_AWAY = 1 << 40
WITHIN_S = 60.0


@contextmanager
def served(role: str) -> Iterator[tuple[Any, Any, ServedHeads]]:
    """(the Reader of a store or of a querier over one, the same over another connection, its heads)."""
    head = new_head(series=3)
    apply(head, [Record(0, 0, ((0, 0, 1.0),))])
    heads = ServedHeads({0: head})
    servicer: Any = heads.service if role == "store" else querier_over(one_store(heads), None, window_ms=1)
    service = GrpcService(
        "tsdb.v1.Reader", servicer, reader_pb2_grpc.add_ReaderServicer_to_server, always=("Coverage",)
    )
    limits = GrpcLimits(running_max=RUNNING_MAX, waiting_max=4 * RUNNING_MAX)
    with build_server([service], host="127.0.0.1", port=0, health=Health(), limits=limits) as server:
        address = f"127.0.0.1:{server.port}"
        with grpc.insecure_channel(address) as one, grpc.insecure_channel(address, [("channel", 2)]) as other:
            try:
                yield reader_pb2_grpc.ReaderStub(one), reader_pb2_grpc.ReaderStub(other), heads
            finally:
                heads.end()  # Reads that still wait are refused at once.


def waits(stub: Any, count: int) -> list[Any]:
    token = common_pb2.Token(topic_id=TOPIC_ID, partition=0, record_offset=FAR_AWAY)
    options = reader_pb2.ReadOptions(after=[token])
    request = reader_pb2.LabelNamesRequest(options=options)
    return [stub.LabelNames.future(request, timeout=WITHIN_S) for _ in range(count)]


def refusals(calls: list[Any]) -> list[str]:
    return [from_rpc_error(call.exception()).reason for call in calls if call.done() and call.exception()]


@pytest.mark.parametrize("role", ["store", "querier"])
def test_reads_that_wait_for_a_far_token_leave_the_running_slots_to_others(role: str) -> None:
    with served(role) as (attacker, other, heads):
        calls = waits(attacker, 4 * RUNNING_MAX)
        wait_until(lambda: len(refusals(calls)) == 2 * RUNNING_MAX, WITHIN_S)
        for _ in range(20):
            assert other.LabelNames(reader_pb2.LabelNamesRequest(), timeout=WITHIN_S).names
            assert other.Coverage(reader_pb2.CoverageRequest(), timeout=WITHIN_S).partitions
        heads.end()
        wait_until(lambda: all(call.done() for call in calls), WITHIN_S)
    assert sorted(set(refusals(calls))) == ["draining", "waiting_requests"]


def test_a_read_refused_for_lack_of_a_waiting_slot_gets_the_limit_and_a_retry_hint() -> None:
    with served("store") as (attacker, _, _heads):
        calls = waits(attacker, 4 * RUNNING_MAX)
        wait_until(lambda: len(refusals(calls)) > 0, WITHIN_S)
        error = next(from_rpc_error(call.exception()) for call in calls if call.done())
    assert isinstance(error, Overloaded)
    assert error.metadata["limit"] == str(2 * RUNNING_MAX)
    assert error.retry_after_s == 1.0
    assert "limit is 8 (grpc_waiting_max is 16): try again later" in error.message
