"""Settings of a cluster's connection, tested without a cluster."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, Session

from support.servers.certificates import Authority
from support.servers.logs import wait_until
from tsdb.config import LoaderSettings, load
from tsdb.history.cassandra.session import READ_PROFILE, Connected, LazySession, open_cluster
from tsdb.history.cassandra.tables import Statements
from tsdb.history.settings import CassandraAccess, HistorySettings, Hosts
from tsdb.model.errors import ConfigMismatch, TsdbError, Unavailable


@contextmanager
def opened(settings: HistorySettings) -> Iterator[Cluster]:
    cluster = open_cluster(Hosts(("127.0.0.1",), 1, "k"), settings)
    try:
        yield cluster
    finally:
        cluster.shutdown()


def test_reads_and_writes_use_local_quorum_and_only_reads_try_a_second_replica() -> None:
    with opened(HistorySettings(write_timeout_s=3.0, read_timeout_s=4.0, speculate_after_s=0.25)) as cluster:
        profiles = cluster.profile_manager.profiles
        writing, reading = profiles[EXEC_PROFILE_DEFAULT], profiles[READ_PROFILE]
        assert writing.consistency_level == reading.consistency_level == ConsistencyLevel.LOCAL_QUORUM
        assert (writing.request_timeout, reading.request_timeout) == (3.0, 4.0)
        assert reading.speculative_execution_policy.delay == 0.25
        assert writing.speculative_execution_policy.new_plan(None, None).next_execution(None) < 0
        assert cluster.compression is False
        assert (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1) in cluster.sockopts


def test_a_user_is_shown_with_the_password_of_its_file(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("from the file\n")
    access = CassandraAccess(username="loader", password="given", password_file=str(secret))
    with opened(HistorySettings(access=access)) as cluster:
        assert (cluster.auth_provider.username, cluster.auth_provider.password) == ("loader", "from the file")
    with opened(HistorySettings()) as cluster:
        assert cluster.auth_provider is None


def test_a_ca_switches_tls_on_and_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with opened(HistorySettings()) as cluster:
        assert cluster.ssl_context is None
    bad = tmp_path / "ca.pem"
    bad.write_text("no certificate")
    for path in (bad, tmp_path / "missing.pem"):
        with pytest.raises(ConfigMismatch, match="TLS files"):
            open_cluster(Hosts(("h",), 1, "k"), HistorySettings(access=CassandraAccess(ssl_ca_location=str(path))))


def test_without_an_answer_each_call_fails_at_once_with_a_retry_hint() -> None:
    session = LazySession(Hosts(("127.0.0.1",), 1, "k"), HistorySettings())
    for _ in range(3):
        with pytest.raises(Unavailable) as away:
            session.get()
        assert away.value.retry_after_s is not None
    session.close()
    session.close()
    with pytest.raises(Unavailable) as closed:
        session.get()
    assert closed.value.reason == "store_closed"


@dataclass
class FakeHost:
    is_up: bool | None = True


class FakeCluster:
    """The parts of the driver's cluster and session that a renewal uses."""

    def __init__(self) -> None:
        self.hosts = [FakeHost(), FakeHost()]
        self.metadata, self.cluster = self, self
        self.ended = threading.Event()

    def all_hosts(self) -> list[FakeHost]:
        return self.hosts

    def shutdown(self) -> None:
        self.ended.set()

    def lose_all(self) -> None:
        for host in self.hosts:
            host.is_up = False


class FakeSessions(LazySession):
    """Connects to `clusters` in order; an error in place of one is raised."""

    def __init__(self, *clusters: FakeCluster | TsdbError) -> None:
        super().__init__(Hosts(("history.example",), 1, "k"), HistorySettings(), renew_after_s=0.0)
        self._clusters = list(clusters)
        self.connects = 0

    def _connected_now(self) -> Connected:
        self.connects += 1
        found = self._clusters.pop(0)
        if isinstance(found, TsdbError):
            raise found
        return Connected(cast(Session, found), cast(Statements, None))


def test_a_session_whose_nodes_are_all_away_is_replaced_by_the_names() -> None:
    first, second = FakeCluster(), FakeCluster()
    sessions = FakeSessions(first, Unavailable("not yet"), second)
    assert sessions.get().session is cast(Session, first)
    first.lose_all()
    wait_until(lambda: sessions.get().session is cast(Session, second))
    assert first.ended.wait(60.0)
    assert sessions.connects == 3
    sessions.get()
    assert not second.ended.is_set()
    sessions.close()
    assert second.ended.is_set()


def test_a_session_with_one_node_left_is_kept() -> None:
    first = FakeCluster()
    sessions = FakeSessions(first, FakeCluster())
    sessions.get()
    first.hosts[0].is_up = False
    for _ in range(10):
        assert sessions.get().session is cast(Session, first)
    assert sessions.connects == 1
    sessions.close()


def test_callers_wait_for_no_new_session_and_a_closed_one_connects_no_more() -> None:
    first, connecting, go_on = FakeCluster(), threading.Event(), threading.Event()

    class Slow(FakeSessions):
        def _connected_now(self) -> Connected:
            if self.connects:
                connecting.set()
                go_on.wait(60.0)
            return super()._connected_now()

    late = FakeCluster()
    sessions = Slow(first, late)
    sessions.get()
    first.lose_all()
    sessions.get()
    sessions.get()
    assert connecting.wait(60.0)
    assert sessions.get().session is cast(Session, first)
    closing = threading.Thread(target=sessions.close)
    closing.start()
    wait_until(lambda: sessions._closed)
    go_on.set()
    closing.join(60.0)
    assert late.ended.wait(60.0), "nobody uses it any more"
    assert first.ended.is_set()


def test_every_connect_resolves_the_names_anew_and_one_name_is_enough() -> None:
    names = {"a": ["10.0.0.1", "10.0.0.2"], "b": ["10.0.0.2"]}
    asked: list[str] = []

    def resolve(name: str) -> list[str]:
        asked.append(name)
        if name not in names:
            raise OSError("no such name")
        return names[name]

    session = LazySession(Hosts(("a", "b"), 1, "k"), HistorySettings(), resolve=resolve)
    assert session._addresses() == ["10.0.0.1", "10.0.0.2"]
    del names["a"]
    names["b"] = ["10.0.0.3"]
    assert session._addresses() == ["10.0.0.3"]
    assert asked == ["a", "b", "a", "b"]
    del names["b"]
    with pytest.raises(Unavailable, match="b: no such name") as away:
        session.get()
    assert away.value.retry_after_s is not None


class TlsNode:
    """Answers one TLS handshake with a certificate for `named`, and the first request with bytes that no node sends."""

    def __init__(self, authority: Authority, named: str) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*authority.issue("node", named))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(10.0)
        self.port: int = self._listener.getsockname()[1]
        self.handshake = ""
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        plain, _ = self._listener.accept()
        with plain:
            try:
                with self._context.wrap_socket(plain, server_side=True) as tls:
                    tls.recv(1)
                    tls.sendall(b"no Cassandra")  # Ends the driver's wait for an answer.
                    self.handshake = "done"
            except OSError as error:
                self.handshake = str(error)

    def joined(self) -> str:
        """The end of the handshake: `done`, or the peer's error."""
        self._thread.join(60.0)
        self._listener.close()
        return self.handshake


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "check_names", "done"),
    [("127.0.0.1", True, True), ("cassandra.example", True, False), ("cassandra.example", False, True)],
    ids=["its address", "another name", "another name, unchecked"],
)
def test_a_node_must_show_a_certificate_for_its_address(
    tmp_path: Path, named: str, check_names: bool, done: bool
) -> None:
    authority = Authority.in_folder(tmp_path)
    node = TlsNode(authority, named)
    access = CassandraAccess(ssl_ca_location=str(authority.ca_file), ssl_check_names=check_names)
    session = LazySession(Hosts(("127.0.0.1",), node.port, "k"), HistorySettings(access=access))
    with pytest.raises(Unavailable) as away:
        session.get()
    session.close()
    assert (node.joined() == "done") == done, node.handshake
    assert done or "doesn't match" in away.value.message or "not valid for" in away.value.message, away.value.message


def test_names_are_checked_unless_the_setting_is_off() -> None:
    assert CassandraAccess().ssl_check_names
    settings = load(LoaderSettings, {"log": "kafka://a:1", "history": "cassandra://a/k"})
    assert settings.history_settings().access.ssl_check_names
