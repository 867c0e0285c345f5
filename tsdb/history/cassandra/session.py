"""Session: the connection to a cluster, opened at the first use, with new attempts until one succeeds.

The driver resolves the contact points once, and reconnects to those addresses alone. A cluster may come back with other
addresses under the same names, so a session whose nodes are all away is replaced by one that resolves the names anew.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
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
from tsdb.history.cassandra.tables import Statements, prepare
from tsdb.history.settings import HistorySettings, Hosts
from tsdb.model.errors import ConfigMismatch, TsdbError, Unavailable
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.ops.threads import new_thread, waiting_for_others

READ_PROFILE = "read"
PROTOCOL = 5  # Cassandra 4 and later. A search for the version costs a refused connection for each try.
CONNECT_TIMEOUT_S = 5.0
CONNECT_AGAIN_S = 1.0  # For this time callers get the error of the last attempt at once and do not wait.
# A node that answers again is used within seconds. The driver's default waits up to ten minutes.
RECONNECT_S = (0.5, 10.0)
# When all nodes were unreachable for this long, a second session is tried beside the first one. The session that
# connects first stays.
RENEW_AFTER_S = 10.0
# A connection without an answer for this long is replaced. Writes to a node that hangs time out before that.
HEARTBEAT_S = 10.0

log = get_logger(__name__)

renewals_total = counter(
    "tsdb_history_session_renewals_total",
    "Sessions of Cassandra replaced: all known nodes were away, and the names of the history led to nodes that answer.",
)

Resolve = Callable[[str], list[str]]
"""A contact point, a name or an address -> the addresses it has now. Raises OSError."""


@dataclass(frozen=True, slots=True)
class Connected:
    """A connected session and its prepared statements."""

    session: Session
    statements: Statements


def open_cluster(hosts: Hosts, settings: HistorySettings, addresses: Sequence[str] = ()) -> Cluster:
    """A cluster object, not connected. Reads and writes use LOCAL_QUORUM; only reads try a second replica. addresses:
    addresses of the contact points; without them the driver resolves the names."""
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
        addresses or hosts.names,
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


def addresses_of(name: str) -> list[str]:
    """All addresses of a name. Raises OSError."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return sorted({str(address[0]) for *_, address in found})


class LazySession:
    """Thread-safe. Connects with the first `get`; from then on the driver itself reconnects, while the cluster keeps
    its addresses. When all known nodes are unreachable, a thread connects by the names again. Until it succeeds,
    callers get the old session's errors at once."""

    def __init__(
        self,
        hosts: Hosts,
        settings: HistorySettings,
        *,
        resolve: Resolve = addresses_of,
        renew_after_s: float = RENEW_AFTER_S,
    ) -> None:
        self._hosts = hosts
        self._settings = settings
        self._resolve = resolve
        self._renew_after_s = renew_after_s
        # Time since which no known node is up. Written without a lock, because a guess suffices.
        self._away_since: float | None = None
        self._renewing: threading.Thread | None = None
        self._closing = threading.Event()
        self._lock = threading.Lock()  # Guards the fields below. It is taken while connecting.
        self._cluster: Cluster | None = None
        self._connected: Connected | None = None
        self._error: TsdbError | None = None
        self._again_at = 0.0
        self._closed = False

    def get(self) -> Connected:
        """The connected session. Raises Unavailable, and ConfigMismatch (store_not_created) for a missing table."""
        connected = self._connected
        if connected is not None:
            self._watch(connected)
            return connected
        with waiting_for_others(), self._lock:
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
            renewing = self._renewing
        self._closing.set()
        if renewing is not None:
            renewing.join(CONNECT_TIMEOUT_S)
        if cluster is not None:
            cluster.shutdown()

    def _watch(self, connected: Connected) -> None:
        """Begin to connect anew once all nodes have been away for RENEW_AFTER_S."""
        if _has_node(connected):
            self._away_since = None
            return
        now, since = time.monotonic(), self._away_since
        if since is None:
            self._away_since = now
        elif now - since >= self._renew_after_s and self._renewing is None:
            with self._lock:
                if self._renewing is None and not self._closed and self._connected is connected:
                    self._renewing = new_thread(self._renew, "history-renew", connected)
                    self._renewing.start()

    def _renew(self, old: Connected) -> None:
        """Connect by the names until that succeeds or a node of the old session is back."""
        try:
            while not _has_node(old) and not self._closing.is_set():
                try:
                    fresh = self._connected_now()
                except TsdbError as error:
                    log.debug("history not reached by its names", reason=error.reason, error=error.message)
                    self._closing.wait(CONNECT_AGAIN_S)
                    continue
                self._replace(old, fresh)
                return
        finally:
            with self._lock:
                self._renewing, self._away_since = None, None

    def _replace(self, old: Connected, fresh: Connected) -> None:
        with self._lock:
            superfluous = fresh if self._closed else old
            if not self._closed:
                self._connected, self._cluster = fresh, fresh.session.cluster
        if superfluous is old:
            renewals_total.inc()
            log.warning("history connected anew: its names lead to other addresses", names=list(self._hosts.names))
        # Statements in flight on the old session fail, and their callers try them again: its nodes are unreachable.
        superfluous.session.cluster.shutdown()

    def _connect_locked(self) -> Connected:
        if self._error is not None and time.monotonic() < self._again_at:
            # A copy for each raise, because a raised error collects the traceback of every raise.
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
        place = f"connecting to {','.join(self._hosts.names)}:{self._hosts.port}"
        with translate_cassandra_errors(place):
            cluster = open_cluster(self._hosts, self._settings, self._addresses())
        try:
            with translate_cassandra_errors(place):
                session = cluster.connect()
                return Connected(session, prepare(session, self._hosts.keyspace))
        except BaseException:
            cluster.shutdown()
            raise

    def _addresses(self) -> list[str]:
        """The addresses of all contact points that resolve. Raises OSError when none does."""
        found: list[str] = []
        failed: OSError | None = None
        for name in self._hosts.names:
            try:
                found += self._resolve(name)
            except OSError as error:
                failed = OSError(f"{name}: {error}")
        if not found and failed is not None:
            raise failed
        return list(dict.fromkeys(found))


def _has_node(connected: Connected) -> bool:
    """Whether the driver has a connection to a node. Also True before its first try."""
    return any(host.is_up is not False for host in connected.session.cluster.metadata.all_hosts())


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
