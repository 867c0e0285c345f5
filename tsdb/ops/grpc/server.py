"""A gRPC server: threads, limits, TLS, tokens, health, reflection and shutdown. Each role adds its services."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from threading import Event
from typing import Any

import grpc
from google.protobuf import descriptor_pool

from tsdb.model import defaults
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.auth import Tokens
from tsdb.ops.byte_budget import RequestBytes
from tsdb.ops.grpc.auth import Admit, AdmitCheck, TokenCheck
from tsdb.ops.grpc.calls import Calls, Gate
from tsdb.ops.grpc.health import SERVICE as HEALTH_SERVICE
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.messages import Expansions, MessageLimits, MessageReader
from tsdb.ops.grpc.receive import Receipts
from tsdb.ops.grpc.senders import Senders
from tsdb.ops.grpc.slots import CallSlots
from tsdb.ops.grpc.threads import CallThreads
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.logs import get_logger
from tsdb.ops.periodic import Periodic
from tsdb.ops.tls import ServerTls

log = get_logger(__name__)

REFLECTION = "grpc.reflection.v1alpha.ServerReflection"
REFLECTED = f"/{REFLECTION}/ServerReflectionInfo"
SPARE_THREADS = 8  # Run refusals, and calls that need no slot, while all other threads are busy.
# Calls beyond the bound that may wait for a thread; gRPC itself refuses more. A write holds a thread for milliseconds,
# and a call in the backlog has no thread and no request yet: 512 senders at once are served.
BACKLOG = 1024
NO_COMPRESSION, GZIP_COMPRESSION = 1, 4  # Bits of the algorithms that gRPC knows.
STREAMS_MAX = 256  # Concurrent calls of one connection. A client queues further calls on its side.
RELIEF_EVERY_S = 0.1  # Interval of the check for calls whose request does not arrive.
IDLE_RELIEF_S = 1.0  # Interval of that check while no request is being received.
FLUSH_S = 2.0  # Time for the last answer to reach its caller. gRPC itself waits 20 s for silent peers.
JOIN_POLL_S = 0.05
GRACE_S = 3600.0  # gRPC's own wait for running calls. Our deadline is shorter and then calls abort().


@dataclass(frozen=True, slots=True)
class GrpcService:
    """One service of a server: full name, servicer, and the generated function that registers the servicer.

    `GrpcService("tsdb.v1.Ingest", servicer, ingest_pb2_grpc.add_IngestServicer_to_server)`

    always: methods that need no slot and are never refused, because operators and routing depend on them.
    patient: methods of short calls, which wait for a slot for a moment instead of a refusal at once.
    requests: limits of one request, where they are not the server's.
    admit: called before a request of this service is read (tsdb.ops.grpc.auth).
    """

    name: str
    servicer: Any
    add: Callable[[Any, grpc.Server], object]
    always: tuple[str, ...] = ()
    patient: tuple[str, ...] = ()
    requests: MessageLimits | None = None
    admit: Admit | None = None


@dataclass(frozen=True, slots=True)
class GrpcLimits:
    """running_max: calls at once, streams included; more are refused with Overloaded (concurrent_requests).

    waiting_max: calls that wait, beyond the running ones (tsdb.ops.grpc.slots). send_timeout_s: a stream that its
    reader does not read for this time is cut.

    receive_bytes_max, send_bytes_max: one message. gRPC refuses larger ones before our code runs, so keep the first
    above the role's own limit: the role's refusal gives more details.
    fields_max: fields of one request, nested ones included.
    requests_bytes_max: memory of all requests being received, and once more of all requests being handled.
    connections_max: connections above it are closed at once. idle_s: a connection without a call is closed after this
    time. handshake_s: time for the handshake of a new connection.
    """

    running_max: int = defaults.GRPC_RUNNING_MAX
    waiting_max: int = defaults.GRPC_WAITING_MAX
    send_timeout_s: float = defaults.SEND_TIMEOUT_S
    receive_bytes_max: int = 4 << 20
    send_bytes_max: int = 64 << 20
    fields_max: int = 100_000
    requests_bytes_max: int = 64 << 20
    connections_max: int = defaults.GRPC_CONNECTIONS_MAX
    idle_s: float = defaults.GRPC_IDLE_TIMEOUT_S
    handshake_s: float = 10.0

    @property
    def receipts_max(self) -> int:
        """Requests received at once."""
        return max(1, min(self.running_max, self.requests_bytes_max // self.receive_bytes_max))


class GrpcServer:
    """A started server listens on `port`. A context manager: leaving it closes and joins, aborting after `drain_s`."""

    def __init__(
        self,
        server: grpc.Server,
        threads: CallThreads,
        receipts: Receipts,
        senders: Senders,
        health: Health,
        gate: Gate,
        host: str,
        port: int,
    ) -> None:
        self.host = host
        self.port = port
        self._server = server
        self._threads = threads
        self._senders = senders
        self._health = health
        self._gate = gate
        self._listens = False
        self._stopped: Event | None = None
        self._idle: Deadline | None = None

        def relieve() -> float | None:
            receives = [each.relieve() for each in (receipts, health.receipts)]
            return None if any(receives) else IDLE_RELIEF_S

        self._relief = Periodic("grpc-relief", RELIEF_EVERY_S, relieve)

    def listen(self, refusal: Callable[[], TsdbError]) -> None:
        """Answer calls with `refusal` until `start`: a caller then learns the reason, instead of waiting unanswered."""
        self._gate.close(refusal)
        self._listen()

    def start(self) -> None:
        """Start to serve. Health stays as the role has set it."""
        if not self._listens:
            self._listen()
        self._gate.open()

    def _listen(self) -> None:
        self._listens = True
        self._server.start()
        self._senders.start()
        self._relief.start()
        log.info("grpc server listens", host=self.host, port=self.port)

    def close(self) -> None:
        """Refuse new calls; running calls continue. Returns at once."""
        self._health.drain()
        self._senders.drain()
        if self._stopped is None:
            self._stopped = self._server.stop(GRACE_S)

    def join(self, timeout_s: float) -> bool:
        """Wait for the running calls after `close`. False when some still run."""
        assert self._stopped is not None, "close comes before join"
        deadline = Deadline.after(timeout_s)
        while not self._stopped.wait(min(JOIN_POLL_S, deadline.remaining())):
            if deadline.expired:
                return False
            if self._flushed():
                self._server.stop(None)
        self._release()
        return True

    def _flushed(self) -> bool:
        """Whether no call has run for FLUSH_S. The remaining connections are then idle."""
        if self._threads.unfinished:
            self._idle = None
        elif self._idle is None:
            self._idle = Deadline.after(FLUSH_S)
        return self._idle is not None and self._idle.expired

    def abort(self) -> None:
        """Cancel the running calls."""
        self._server.stop(None).wait(5.0)
        self._release()

    def failure(self) -> BaseException | None:
        """The exception that ended the check of slow senders or readers; None while both run."""
        return self._senders.failure() or self._relief.failure()

    def _release(self) -> None:
        self._senders.close()
        self._relief.close()
        self._relief.join(RELIEF_EVERY_S + 1.0)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._health.close()

    def __enter__(self) -> GrpcServer:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
        if not self.join(5.0):
            self.abort()


class _Reflection(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # No class that takes types at run time.
    """The reflection service. Its first call imports it: the descriptors of descriptors take 4 MiB."""

    def __init__(self, services: Sequence[str]) -> None:
        self._services = services

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        return self._handler if handler_call_details.method == REFLECTED else None

    @cached_property
    def _handler(self) -> grpc.RpcMethodHandler[Any, Any]:
        from grpc_reflection.v1alpha.reflection import ReflectionServicer
        from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest, ServerReflectionResponse

        return grpc.stream_stream_rpc_method_handler(
            ReflectionServicer(self._services).ServerReflectionInfo,
            ServerReflectionRequest.FromString,
            ServerReflectionResponse.SerializeToString,
        )


def build_server(
    services: Sequence[GrpcService],
    *,
    host: str,
    port: int,
    health: Health,
    reflect: bool = True,
    tls: ServerTls | None = None,
    tokens: Tokens | None = None,
    limits: GrpcLimits | None = None,
    held: RequestBytes | None = None,
) -> GrpcServer:
    """A server bound to host and port (0: any free one), not yet started. held: the memory budget that other servers
    share.

    Raises Unavailable (bind) when the address is not available, ConfigMismatch (tls) for unusable files.
    """
    limits = limits or GrpcLimits()
    names = [service.name for service in services]
    methods = _methods(names)
    if reflect:
        names.append(REFLECTION)
        methods.append(REFLECTED)
    calls_max = limits.running_max + limits.waiting_max
    threads = CallThreads(calls_max + SPARE_THREADS, "grpc")
    receipts = Receipts(limits.receipts_max, threads)
    held = held or RequestBytes(limits.requests_bytes_max)
    reader = partial(MessageReader, held=held, expansions=Expansions())
    requests = dict.fromkeys(names, MessageLimits(limits.receive_bytes_max, limits.fields_max))
    requests.update((service.name, service.requests) for service in services if service.requests is not None)
    slots = CallSlots(limits.running_max, limits.waiting_max)
    senders = Senders(slots, limits.send_timeout_s)
    gate = Gate()
    always = frozenset(f"/{service.name}/{method}" for service in services for method in service.always)
    patient = frozenset(f"/{service.name}/{method}" for service in services for method in service.patient)
    # The first interceptor is the outermost: it also counts what the token check refuses.
    interceptors: list[Any] = [
        Calls(methods, receipts, reader, requests, slots, senders, gate, always=always, patient=patient)
    ]
    if tokens:
        interceptors.append(TokenCheck(tokens))
    admits = {f"/{service.name}": service.admit for service in services if service.admit is not None}
    if admits:
        interceptors.append(AdmitCheck(admits))
    server = grpc.server(
        threads,
        interceptors=interceptors,
        options=_options(limits),
        maximum_concurrent_rpcs=calls_max + BACKLOG,
    )
    for service in services:
        service.add(service.servicer, server)
    health.add_to(server)
    if reflect:
        server.add_generic_rpc_handlers((_Reflection([*names, HEALTH_SERVICE]),))
    return GrpcServer(server, threads, receipts, senders, health, gate, host, _bind(server, host, port, tls))


def _options(limits: GrpcLimits) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", limits.receive_bytes_max),
        ("grpc.max_send_message_length", limits.send_bytes_max),
        # Our code expands messages, with the size checked first: tsdb.ops.grpc.messages.
        ("grpc.per_message_decompression", 0),
        ("grpc.compression_enabled_algorithms_bitset", NO_COMPRESSION | GZIP_COMPRESSION),
        # Fixes the flow-control window: the bytes that a caller may send before a read. The probe would grow it to
        # megabytes for each stream.
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_concurrent_streams", STREAMS_MAX),
        ("grpc.max_allowed_incoming_connections", limits.connections_max),
        ("grpc.max_connection_idle_ms", round(limits.idle_s * 1000)),
        ("grpc.server_handshake_timeout_ms", round(limits.handshake_s * 1000)),
        # With port reuse a second process on the same port would silently take half of the calls.
        ("grpc.so_reuseport", 0),
        # Detect peers that are gone, and allow idle clients one keepalive ping every 5 s.
        ("grpc.keepalive_time_ms", 30_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.http2.max_ping_strikes", 0),
    ]


def _bind(server: grpc.Server, host: str, port: int, tls: ServerTls | None) -> int:
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        bound = server.add_secure_port(address, tls.grpc_credentials()) if tls else server.add_insecure_port(address)
    except RuntimeError as error:
        raise _not_bound(address) from error
    if not bound:
        raise _not_bound(address)
    return bound


def _not_bound(address: str) -> Unavailable:
    # gRPC's own text names no cause, only a variable for its debug log.
    return Unavailable(
        f"cannot listen on {address} for gRPC: another process has the port, or the address is not of this host: end"
        " that process, or change the setting grpc (--grpc)",
        reason="bind",
        address=address,
    )


def _methods(services: Sequence[str]) -> list[str]:
    pool = descriptor_pool.Default()
    found = [pool.FindServiceByName(name) for name in services]
    return [f"/{service.full_name}/{method.name}" for service in found for method in service.methods]
