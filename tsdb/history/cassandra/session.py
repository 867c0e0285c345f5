"""Session: the connection to a cluster, opened at the first use, with new attempts until one succeeds."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from copy import copy
from dataclasses import dataclass

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import (
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    TokenAwarePolicy,
)
from cassandra.query import tuple_factory

from tsdb.history.cassandra.errors import translate_cassandra_errors
from tsdb.history.cassandra.statements import Statements, prepare
from tsdb.history.hosts import Hosts
from tsdb.history.settings import HistorySettings
from tsdb.model.errors import ConfigMismatch, TsdbError, Unavailable
from tsdb.ops.logs import get_logger

READ_PROFILE = "read"
PROTOCOL = 5  # Cassandra 4 and later. A search for the version costs a refused connection for each try.
CONNECT_TIMEOUT_S = 5.0
CONNECT_AGAIN_S = 1.0  # Until then callers get the last attempt's error at once and do not wait.
# A node that is back is used again within seconds; the driver's default waits up to ten minutes.
RECONNECT_S = (0.5, 10.0)
# A connection without an answer for this long is replaced. Writes to a node that hangs time out before that.
HEARTBEAT_S = 10.0

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Connected:
    """A connected session and its prepared statements."""

    session: Session
    statements: Statements


def open_cluster(hosts: Hosts, settings: HistorySettings) -> Cluster:
    """A cluster object, not connected. Reads and writes use LOCAL_QUORUM; only reads try a second replica."""
    access = settings.access
    # Token awareness sends a statement to a replica of its row; the inner policy stays in one data centre.
    balancing = TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=access.local_dc))
    writing = ExecutionProfile(
        load_balancing_policy=balancing,
        consistency_level=ConsistencyLevel.LOCAL_QUORUM,
        request_timeout=settings.write_timeout_s,
        row_factory=tuple_factory,
    )
    reading = ExecutionProfile(
        load_balancing_policy=balancing,
        consistency_level=ConsistencyLevel.LOCAL_QUORUM,
        request_timeout=settings.read_timeout_s,
        row_factory=tuple_factory,
        speculative_execution_policy=ConstantSpeculativeExecutionPolicy(settings.speculate_after_s, 1),
    )
    return Cluster(
        hosts.names,
        hosts.port,
        execution_profiles={EXEC_PROFILE_DEFAULT: writing, READ_PROFILE: reading},
        protocol_version=PROTOCOL,
        # Chunks are already compressed. Without NODELAY a serial write takes 44 ms, with it a tenth of that.
        compression=False,
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        auth_provider=PlainTextAuthProvider(access.username, access.secret()) if access.username else None,
        ssl_context=_tls(settings),
        connect_timeout=CONNECT_TIMEOUT_S,
        control_connection_timeout=CONNECT_TIMEOUT_S,
        idle_heartbeat_interval=HEARTBEAT_S,
        idle_heartbeat_timeout=HEARTBEAT_S,
        reconnection_policy=ExponentialReconnectionPolicy(*RECONNECT_S, max_attempts=None),
    )


class LazySession:
    """Thread-safe. Connects with the first `get`; from then on the driver itself reconnects."""

    def __init__(self, hosts: Hosts, settings: HistorySettings) -> None:
        self._hosts = hosts
        self._settings = settings
        self._lock = threading.Lock()  # Guards the fields below; held while connecting.
        self._cluster: Cluster | None = None
        self._connected: Connected | None = None
        self._error: TsdbError | None = None
        self._again_at = 0.0
        self._closed = False

    def get(self) -> Connected:
        """The connected session. Raises Unavailable, and ConfigMismatch (store_not_created) for a missing table."""
        connected = self._connected
        if connected is not None:
            return connected
        with self._lock:
            if self._closed:
                raise Unavailable("the history connection is closed", reason="store_closed")
            if self._connected is None:
                self._connected = self._connect_locked()
            return self._connected

    def close(self) -> None:
        """Close the connection. A second call does nothing."""
        with self._lock:
            self._closed = True
            self._connected = None
            cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.shutdown()

    def _connect_locked(self) -> Connected:
        if self._error is not None and time.monotonic() < self._again_at:
            # A copy each time: a raised error collects the traceback of every raise.
            raise copy(self._error)
        try:
            connected = self._connected_now()
        except TsdbError as error:
            self._error, self._again_at = error, time.monotonic() + CONNECT_AGAIN_S
            raise
        self._cluster = connected.session.cluster
        log.info("history connected", keyspace=self._hosts.keyspace, nodes=len(self._cluster.metadata.all_hosts()))
        return connected

    def _connected_now(self) -> Connected:
        cluster = open_cluster(self._hosts, self._settings)
        try:
            with translate_cassandra_errors(f"connecting to {','.join(self._hosts.names)}:{self._hosts.port}"):
                session = cluster.connect()
                return Connected(session, prepare(session, self._hosts.keyspace))
        except BaseException:
            cluster.shutdown()
            raise


def _tls(settings: HistorySettings) -> ssl.SSLContext | None:
    access = settings.access
    if not access.ssl_ca_location:
        return None
    try:
        context = ssl.create_default_context(cafile=access.ssl_ca_location)
        context.check_hostname = access.ssl_check_names
        if access.ssl_certificate_location:
            context.load_cert_chain(access.ssl_certificate_location, access.ssl_key_location or None)
    except (OSError, ssl.SSLError) as error:
        raise ConfigMismatch(f"TLS files of Cassandra: {error}", reason="history_settings") from error
    return context
