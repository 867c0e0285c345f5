"""Makes the servers of a role, with limits, TLS and tokens from its settings."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace

from tsdb.config import ProcessSettings, ServiceSettings
from tsdb.config.gateway import GatewayFields
from tsdb.config.select import SelectFields
from tsdb.config.types import HostPort
from tsdb.model.errors import ConfigMismatch
from tsdb.ops.auth import Tokens
from tsdb.ops.byte_budget import RequestBytes
from tsdb.ops.descriptors import grpc_connections, http_connections
from tsdb.ops.grpc.health import Health, partition_service
from tsdb.ops.grpc.messages import MessageLimits
from tsdb.ops.grpc.server import GrpcLimits, GrpcServer, GrpcService, build_server
from tsdb.ops.http.connections import HttpLimits
from tsdb.ops.tls import ServerTls
from tsdb.reader.read_call import AnswerBytes, ReadCalls
from tsdb.v1 import reader_pb2_grpc

READ_BYTES_MAX = 4 << 20  # One read: more than twice the 200,000 series ids that a Select may match by default.
READ_FIELDS_MAX = 100_000  # Fields of one read: 1,000 matchers and 10,000 tokens have 44,000.
READS_BYTES_MAX = 64 << 20
MESSAGE_SLACK_BYTES = 1 << 20  # gRPC's limit is above our own, so that callers get our refusal.
FIELDS_SLACK = 64
EVERY_ADDRESS = frozenset(("0.0.0.0", "::"))
REQUESTS_IN_HAND_MIN = 8  # Requests of the largest size that fit at once, whatever the limits are.


def grpc_server(
    settings: ServiceSettings,
    services: Sequence[GrpcService],
    health: Health,
    *,
    writes: GatewayFields | None = None,
    held: RequestBytes | None = None,
) -> GrpcServer:
    """A role's gRPC server, bound and not yet started. writes: limits of writes, for a role that accepts them.

    held: the memory budget that its requests share with those of the HTTP server.
    """
    limits = GrpcLimits(
        running_max=settings.grpc_running_max,
        waiting_max=settings.grpc_waiting_max,
        send_timeout_s=settings.send_timeout_s,
        receive_bytes_max=READ_BYTES_MAX,
        requests_bytes_max=READS_BYTES_MAX,
        connections_max=grpc_connections(settings.grpc_connections_max),
        idle_s=settings.grpc_idle_timeout_s,
    )
    if writes is not None:
        limits = replace(
            limits,
            receive_bytes_max=_largest(writes),
            requests_bytes_max=_in_hand(writes),
            fields_max=writes.request_series_max + FIELDS_SLACK,
        )
    listen = settings.grpc_listen
    return build_server(
        services,
        host=listen.host,
        port=listen.port,
        health=health,
        tls=server_tls(settings),
        tokens=server_tokens(settings, listen),
        limits=limits,
        held=held,
    )


def reader_service(servicer: reader_pb2_grpc.ReaderServicer, *always: str) -> GrpcService:
    """The Reader service of a store or querier. always: methods that need no slot."""
    add = reader_pb2_grpc.add_ReaderServicer_to_server
    return GrpcService(
        "tsdb.v1.Reader", servicer, add, always=always, requests=MessageLimits(READ_BYTES_MAX, READ_FIELDS_MAX)
    )


def request_bytes(writes: GatewayFields) -> RequestBytes:
    """The memory of all requests in hand of a process that accepts writes, gRPC and HTTP together."""
    return RequestBytes(_in_hand(writes), "inflight_bytes_max")


def _largest(writes: GatewayFields) -> int:
    return max(READ_BYTES_MAX, writes.request_bytes_max + MESSAGE_SLACK_BYTES)


def _in_hand(writes: GatewayFields) -> int:
    return max(writes.inflight_bytes_max, REQUESTS_IN_HAND_MIN * _largest(writes))


def http_limits(settings: ProcessSettings) -> HttpLimits:
    return HttpLimits(
        connections_max=http_connections(settings.http_connections_max),
        header_timeout_s=settings.http_header_timeout_s,
        idle_timeout_s=settings.http_idle_timeout_s,
        request_timeout_s=settings.http_request_timeout_s,
        body_timeout_s=settings.http_body_timeout_s,
        url_bytes_max=settings.http_url_bytes_max,
        header_bytes_max=settings.http_header_bytes_max,
    )


def server_tls(settings: ProcessSettings) -> ServerTls | None:
    """TLS of our servers; None when it is off."""
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return None
    return ServerTls(settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file)


def server_tokens(settings: ProcessSettings, listen: HostPort) -> Tokens | None:
    """Bearer tokens that callers of a server must show; None when none are set. listen: its address.

    Raises ConfigMismatch (insecure_listen) for an address beyond this machine without a token.
    """
    if settings.token is None and settings.token_file is None:
        if not listen.is_loopback and not settings.insecure_listen:
            raise ConfigMismatch(
                f"{listen} would listen beyond this machine without a token, so anyone who reaches it "
                "could read or write: set token_file, listen on 127.0.0.1, or set insecure_listen where the network "
                "keeps others out",
                reason="insecure_listen",
            )
        return None
    text = settings.token.get_secret_value() if settings.token else ""
    return Tokens(text=text, file=settings.token_file)


def health_setter(health: Health) -> Callable[[int | None, bool], None]:
    """A function that sets gRPC health of a partition, or of the whole server (None). For reporters."""

    def set_health(partition: int | None, serving: bool) -> None:
        health.set("" if partition is None else partition_service(partition), serving=serving)

    return set_health


def read_calls(fields: SelectFields) -> ReadCalls:
    """The bounds that all reads of a process share."""
    return ReadCalls(fields.read_timeout_s, AnswerBytes(fields.answers_bytes_max))


def listens_at(listen: HostPort, place: HostPort) -> bool:
    """Whether a call to `place` reaches a server of this machine that listens at `listen`. The name is resolved; an
    unknown name reaches no server."""
    if place.port != listen.port:
        return False
    places, own = _resolved(place.host), _resolved(listen.host)
    return any(_is_here(one) for one in places) if own & EVERY_ADDRESS else bool(places & own)


def _resolved(host: str) -> set[str]:
    try:
        return {str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_DGRAM)}
    except OSError:
        return set()


def _is_here(address: str) -> bool:
    """Whether the address is one of this machine: only then a socket can be bound to it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True
