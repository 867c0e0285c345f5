"""A role as seen by orchestrators and senders without retries: liveness, gRPC health, one write."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from support.servers.processes import Role
from tsdb.client import RequestLimits, TsdbError, WriteBatch
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.ops.grpc.health import partition_service
from tsdb.v1 import ingest_pb2_grpc

PROBE_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class OneTry:
    """How a single write ended: the error (None: OK) with gRPC's own status, and after how long."""

    error: TsdbError | None
    code: grpc.StatusCode
    seconds: float


def healthy(role: Role) -> bool:
    """Whether `/-/healthy` answers 200."""
    try:
        with urllib.request.urlopen(f"http://{role.http}/-/healthy", timeout=PROBE_WITHIN_S) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False


def serving(role: Role, partition: int | None = None) -> bool:
    """grpc.health.v1 says SERVING, of the process or of one partition."""
    service = "" if partition is None else partition_service(partition)
    with grpc.insecure_channel(role.grpc) as channel:
        check = health_pb2_grpc.HealthStub(channel).Check
        answer = check(health_pb2.HealthCheckRequest(service=service), timeout=PROBE_WITHIN_S)
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def partitions_ready(role: Role) -> dict[int, bool]:
    """/-/ready, partition by partition; empty while nothing answers."""
    _, told = role.ready()
    return {int(number): state["ready"] for number, state in ((told or {}).get("partitions") or {}).items()}


def write_once(role: Role, deadline_s: float) -> OneTry:
    """Write one sample in one call, without a retry."""
    batch = WriteBatch()
    batch.add({"__name__": "one_try", "job": "probe"}, time.time_ns() // 1_000_000, 1.0)
    (part,) = batch.parts(RequestLimits())
    begin = time.monotonic()
    with grpc.insecure_channel(role.grpc) as channel:
        try:
            ingest_pb2_grpc.IngestStub(channel).Write(part.request, timeout=deadline_s)
        except grpc.RpcError as error:
            code = error.code()
            return OneTry(from_rpc_error(error), code, time.monotonic() - begin)
    return OneTry(None, grpc.StatusCode.OK, time.monotonic() - begin)
