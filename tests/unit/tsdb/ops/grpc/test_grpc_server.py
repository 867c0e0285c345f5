"""The gRPC server bounds, authenticates, counts and ends its calls."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from support.counters import sample
from support.data import fuzz
from support.drills.edge_attackers import HTTP2_PREFACE, HTTP2_SETTINGS
from support.fakes.grpc_echo import Scripted, call_raw, plain_channel, scripted_server, scripted_services, write
from support.servers.certificates import Authority
from tsdb.model.errors import InvalidRequest, Overloaded, Unauthenticated, Unavailable
from tsdb.ops.auth import Tokens
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.ops.grpc.health import Health, partition_service
from tsdb.ops.grpc.server import GrpcLimits, GrpcServer, build_server
from tsdb.ops.tls import ServerTls
from tsdb.v1 import reader_pb2, reader_pb2_grpc

WRITE = "/tsdb.v1.Ingest/Write"
WATCH = "/tsdb.v1.Reader/Watch"


def refused(channel: grpc.Channel, token: str | None = None) -> Exception:
    with pytest.raises(grpc.RpcError) as caught:
        write(channel, token=token)
    return from_rpc_error(caught.value)


def health_of(channel: grpc.Channel, service: str = "") -> str:
    stub: Any = health_pb2_grpc.HealthStub(channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=60)
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


def test_a_call_is_answered_counted_and_timed() -> None:
    with scripted_server(Scripted()) as server, plain_channel(server) as channel:
        before = sample("tsdb_grpc_requests_total", method=WRITE, code="OK")
        assert write(channel, samples=3).samples == 3
    assert sample("tsdb_grpc_requests_total", method=WRITE, code="OK") == before + 1
    assert sample("tsdb_grpc_duration_seconds_count", method=WRITE) > 0


def test_an_unknown_method_does_not_become_a_label() -> None:
    with scripted_server(Scripted()) as server, plain_channel(server) as channel:
        with pytest.raises(grpc.RpcError) as caught:
            call_raw(channel, "/no.Such/Method", b"")
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert sample("tsdb_grpc_requests_total", method="unknown", code="UNIMPLEMENTED") > 0


def test_a_server_before_its_start_refuses_with_the_reason_and_serves_after_it() -> None:
    server = build_server(scripted_services(Scripted()), host="127.0.0.1", port=0, health=Health())
    server.listen(lambda: Unavailable("the role is starting", reason="starting", retry_after_s=1.0))
    with plain_channel(server) as channel:
        error = refused(channel)
        assert isinstance(error, Unavailable)
        assert (error.message, error.reason, error.retry_after_s) == ("the role is starting", "starting", 1.0)
        assert health_of(channel) == "NOT_SERVING"
        with server:
            assert write(channel).samples == 1


class TestTokens:
    @pytest.mark.parametrize(
        ("token", "reason"), [(None, "token_missing"), ("", "token_malformed"), ("wrong", "token_wrong")]
    )
    def test_without_a_valid_token_nothing_is_served(self, token: str | None, reason: str) -> None:
        acts: list[int] = []
        before = sample("tsdb_auth_failures_total", server="grpc", reason=reason)
        servicer = Scripted(lambda context: acts.append(1))
        with scripted_server(servicer, tokens=Tokens(text="good")) as server, plain_channel(server) as channel:
            error = refused(channel, token)
        assert (type(error), getattr(error, "reason", "")) == (Unauthenticated, reason)
        assert sample("tsdb_auth_failures_total", server="grpc", reason=reason) == before + 1
        assert not acts

    def test_any_of_several_tokens_opens(self) -> None:
        tokens = Tokens(text="old,new")
        with scripted_server(Scripted(), tokens=tokens) as server, plain_channel(server) as channel:
            assert [write(channel, token=token).samples for token in ("old", "new")] == [1, 1]

    def test_streams_and_reflection_want_the_token_too(self) -> None:
        with scripted_server(Scripted(), tokens=Tokens(text="good")) as server, plain_channel(server) as channel:
            stub: Any = reader_pb2_grpc.ReaderStub(channel)
            with pytest.raises(grpc.RpcError) as caught:
                list(stub.Watch(reader_pb2.WatchRequest(), timeout=60))
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            with pytest.raises(grpc.RpcError) as caught:
                list(ProtoReflectionDescriptorDatabase(channel).get_services())
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    def test_health_needs_no_token(self) -> None:
        with scripted_server(Scripted(), tokens=Tokens(text="good")) as server, plain_channel(server) as channel:
            assert health_of(channel) == "NOT_SERVING"


class TestHealth:
    def test_follows_what_the_role_says_per_partition(self) -> None:
        health = Health()
        with scripted_server(Scripted(), health=health) as server, plain_channel(server) as channel:
            health.set("", serving=True)
            health.set(partition_service(3), serving=True)
            health.set(partition_service(4), serving=False)
            assert [health_of(channel, s) for s in ("", "partition-3", "partition-4")] == [
                "SERVING",
                "SERVING",
                "NOT_SERVING",
            ]
            with pytest.raises(grpc.RpcError) as caught:
                health_of(channel, "partition-5")
            assert caught.value.code() is grpc.StatusCode.NOT_FOUND

    def test_answers_while_every_other_thread_is_busy(self) -> None:
        with busy_server(running_max=2) as (server, _), plain_channel(server) as channel:
            assert health_of(channel) == "NOT_SERVING"

    def test_is_not_serving_while_draining(self) -> None:
        health = Health()
        with busy_server(running_max=2, health=health) as (server, release), plain_channel(server) as channel:
            health.set("", serving=True)
            stub: Any = health_pb2_grpc.HealthStub(channel)
            watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=60)
            assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
            server.close()
            assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
            watch.cancel()
            release.set()


@contextmanager
def busy_server(*, running_max: int, health: Health | None = None) -> Iterator[tuple[GrpcServer, threading.Event]]:
    """A server whose every allowed call runs until the event is set."""
    release, entered = threading.Event(), threading.Semaphore(0)

    def hold(_context: grpc.ServicerContext) -> None:
        entered.release()
        assert release.wait(60.0)

    limits = GrpcLimits(running_max=running_max)
    with scripted_server(Scripted(hold), health=health, limits=limits) as server, plain_channel(server) as channel:
        callers = [threading.Thread(target=write, args=(channel,)) for _ in range(running_max)]
        for caller in callers:
            caller.start()
        for _ in callers:
            assert entered.acquire(timeout=60)
        try:
            yield server, release
        finally:
            release.set()
            for caller in callers:
                caller.join(60.0)


class TestBounds:
    def test_a_call_too_many_is_refused_at_once_with_a_hint(self) -> None:
        with busy_server(running_max=2) as (server, _), plain_channel(server) as channel:
            error = refused(channel)
            assert isinstance(error, Overloaded)
            assert (error.reason, error.metadata["limit"]) == ("concurrent_requests", "2")
            assert error.retry_after_s
        assert sample("tsdb_grpc_errors_total", method=WRITE, reason="concurrent_requests") > 0
        assert sample("tsdb_grpc_running_requests") == 0

    def test_a_message_over_the_limit_is_refused_and_not_to_be_retried(self) -> None:
        limits = GrpcLimits(receive_bytes_max=1024)
        with scripted_server(Scripted(), limits=limits) as server, plain_channel(server) as channel:
            with pytest.raises(grpc.RpcError) as caught:
                write(channel, samples=1000)
            error = from_rpc_error(caught.value)
            assert (type(error), error.reason) == (InvalidRequest, "message_too_large")
            assert write(channel).samples == 1

    def test_a_stream_that_its_caller_leaves_gives_its_room_back(self) -> None:
        servicer = Scripted(watch_on=lambda: True)
        with (
            scripted_server(servicer, limits=GrpcLimits(running_max=1)) as server,
            plain_channel(server) as channel,
        ):
            stub: Any = reader_pb2_grpc.ReaderStub(channel)
            stream = stub.Watch(reader_pb2.WatchRequest(), timeout=60)
            next(stream)
            assert isinstance(refused(channel), Overloaded)
            stream.cancel()
            write_when_there_is_room(channel)
        assert sample("tsdb_grpc_requests_total", method=WATCH, code="CANCELLED") > 0


def write_when_there_is_room(channel: grpc.Channel) -> None:
    for _ in range(10_000):
        try:
            write(channel)
            return
        except grpc.RpcError as error:
            if not isinstance(from_rpc_error(error), Overloaded):
                raise
    raise AssertionError("the room never came back")


class TestLifecycle:
    def test_close_refuses_new_calls_and_join_waits_for_running_ones(self) -> None:
        with busy_server(running_max=1) as (server, release):
            server.close()
            assert not server.join(0.05)
            with plain_channel(server) as channel:
                assert isinstance(refused(channel), Unavailable)
            release.set()
            assert server.join(60.0)

    def test_connections_that_ignore_the_end_do_not_hold_it_up(self) -> None:
        with scripted_server(Scripted()) as server, contextlib.ExitStack() as stack:
            for sent in (b"", HTTP2_PREFACE, HTTP2_PREFACE + HTTP2_SETTINGS):
                silent = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=60))
                silent.sendall(sent)
            with plain_channel(server) as channel:
                assert write(channel).samples == 1
            server.close()
            assert server.join(60.0)

    def test_abort_cancels_what_runs(self) -> None:
        with scripted_server(Scripted(watch_on=lambda: True)) as server, plain_channel(server) as channel:
            stub: Any = reader_pb2_grpc.ReaderStub(channel)
            stream = stub.Watch(reader_pb2.WatchRequest(), timeout=60)
            next(stream)
            server.close()
            server.abort()
            with pytest.raises(grpc.RpcError):
                list(stream)

    def test_an_address_in_use_is_named(self) -> None:
        with (
            scripted_server(Scripted()) as server,
            pytest.raises(Unavailable, match=f"127.0.0.1:{server.port} for gRPC: another process") as caught,
        ):
            build_server([], host="127.0.0.1", port=server.port, health=Health())
        assert caught.value.reason == "bind"


class TestTls:
    def test_serves_only_with_tls(self, tmp_path: Path) -> None:
        authority = Authority.in_folder(tmp_path)
        with scripted_server(Scripted(), tls=ServerTls(*authority.issue("server"))) as server:
            with secure_channel(server, authority) as channel:
                assert write(channel).samples == 1
            with plain_channel(server) as channel:
                assert isinstance(refused(channel), Unavailable)

    def test_with_a_client_ca_callers_need_its_certificate(self, tmp_path: Path) -> None:
        authority, stranger = Authority.in_folder(tmp_path / "ours"), Authority.in_folder(tmp_path / "theirs")
        tls = ServerTls(*authority.issue("server"), authority.ca_file)
        with scripted_server(Scripted(), tls=tls) as server:
            with secure_channel(server, authority, authority.issue("client")) as channel:
                assert write(channel).samples == 1
            for shown in (None, stranger.issue("client")):
                with secure_channel(server, authority, shown) as channel:
                    assert isinstance(refused(channel), Unavailable)

    def test_a_renewed_certificate_is_used_without_a_restart(self, tmp_path: Path) -> None:
        before, after = Authority.in_folder(tmp_path / "a"), Authority.in_folder(tmp_path / "b")
        cert_file, key_file = before.issue("server")
        with scripted_server(Scripted(), tls=ServerTls(cert_file, key_file)) as server:
            new_cert, new_key = after.issue("server")
            cert_file.write_bytes(new_cert.read_bytes())
            with secure_channel(server, before) as channel:  # half renewed: the pair in use stays
                assert write(channel).samples == 1
            key_file.write_bytes(new_key.read_bytes())
            with secure_channel(server, after) as channel:
                assert write(channel).samples == 1
            with secure_channel(server, before) as channel:
                assert isinstance(refused(channel), Unavailable)


@contextmanager
def secure_channel(
    server: GrpcServer, authority: Authority, client: tuple[Path, Path] | None = None
) -> Iterator[grpc.Channel]:
    cert, key = (path.read_bytes() for path in client) if client else (None, None)
    credentials = grpc.ssl_channel_credentials(authority.ca_file.read_bytes(), key, cert)
    # Channels to one address share connections otherwise, and a second one would not shake hands anew.
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(f"127.0.0.1:{server.port}", credentials, options) as channel:
        yield channel


def test_fuzzed_bytes_do_not_stop_the_server() -> None:
    with scripted_server(Scripted()) as server:
        for payload in fuzz.payloads(seed=7, count=40):
            fuzz.send(server.port, payload)
        with plain_channel(server) as channel:
            assert write(channel).samples == 1


def test_reflection_lists_the_services() -> None:
    with scripted_server(Scripted()) as server, plain_channel(server) as channel:
        names = set(ProtoReflectionDescriptorDatabase(channel).get_services())
    assert {"tsdb.v1.Ingest", "tsdb.v1.Reader", "grpc.health.v1.Health"} <= names
