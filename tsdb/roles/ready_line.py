"""The ready line of a role: prints addresses for writes and reads, and the next commands to type."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tsdb.config import ProcessSettings, effective
from tsdb.config.common import ServiceSettings
from tsdb.config.promql import UiFields
from tsdb.config.types import HostPort
from tsdb.ops.health import Readiness
from tsdb.ops.lifecycle import Component
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import new_thread

POLL_S = 0.1
SETTLE_S = 0.6  # Puts the logs of the start before the ready line: partition reporters check every 0.5 s.

WRITERS = frozenset({"gateway", "standalone"})
READERS = frozenset({"store", "querier", "standalone"})

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReadyLine:
    """Content of the line. write, read: HOST:PORT of gRPC; "" where the role has no gRPC server. next: commands to
    type. has_pages: whether the HTTP server has pages at /."""

    role: str
    write: str
    read: str
    http: str
    next: tuple[str, ...]
    has_pages: bool = False

    def text(self) -> str:
        """The line for a terminal."""
        at = f"{'pages, ' if self.has_pages else ''}probes and metrics at"
        places = {"write to": self.write, "read from": self.read, at: self.http}
        where = ", ".join(f"{verb} {place}" for verb, place in places.items() if place)
        return f"ready: {self.role}; {where}; next: {'; '.join(self.next)}"

    def emit(self, *, json: bool) -> None:
        """Write the line to stderr; with JSON logs as an event."""
        if json:
            log.info("ready", role=self.role, write=self.write, read=self.read, http=self.http, next=self.next)
        else:
            print(self.text(), file=sys.stderr, flush=True)


def ready_line(role: str, settings: ProcessSettings, grpc_port: int | None, http_port: int) -> ReadyLine:
    """The line of a role. grpc_port: None for a role without a gRPC server."""
    grpc = ""
    if grpc_port is not None and isinstance(settings, ServiceSettings):
        grpc = _reachable(settings.grpc_listen, grpc_port)
    http = ("https://" if settings.tls_cert_file else "http://") + _reachable(settings.http_listen, http_port)
    write, read = grpc if role in WRITERS else "", grpc if role in READERS else ""
    has_pages = isinstance(settings, UiFields) and settings.ui
    return ReadyLine(role, write, read, http, tuple(_next(role, settings, grpc, http)), has_pages)


class ReadyWatch(Component):
    """A component that calls `on_ready` once, when the process is ready for the first time."""

    def __init__(
        self, readiness: Callable[[], Readiness], on_ready: Callable[[], None], *, settle_s: float = SETTLE_S
    ) -> None:
        self._readiness = readiness
        self._on_ready = on_ready
        self._settle_s = settle_s
        self._closing = threading.Event()
        self._thread = new_thread(self._run, "ready-line")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop watching. The ready line is then not printed."""
        self._closing.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread; False when it still runs after the timeout."""
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._settled():
            if self._closing.wait(POLL_S):
                return
        self._on_ready()

    def _settled(self) -> bool:
        """Whether the process is ready, and still ready after `settle_s`."""
        return self._readiness().ready and not self._closing.wait(self._settle_s) and self._readiness().ready


def _reachable(listen: HostPort, port: int) -> str:
    """An address to call from this machine. The address of all interfaces becomes the loopback address."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(listen.host, listen.host)
    return f"[{host}]:{port}" if ":" in host.strip("[]") and not host.startswith("[") else f"{host}:{port}"


def _next(role: str, settings: ProcessSettings, grpc: str, http: str) -> list[str]:
    call = f"--address {grpc}{_credentials(settings)}"
    commands = []
    if role in WRITERS:
        commands.append(f"""echo 'up{{job="demo"}} 1' | tsdb write - --format prom {call}""")
    if role in READERS:
        # A store does not evaluate PromQL.
        raw = "--raw " if role == "store" else ""
        commands += [f"tsdb query up {raw}{call}", f"tsdb status {call}"]
    if role == "chunker":
        commands.append(f"tsdb chunks status {_log(settings)}")
    if role == "loader":
        commands.append(f"tsdb history check {_log(settings)} --history {effective(settings)['history']}")
    if role == "ruler":
        commands.append(f"curl -s {http}/api/v1/rules")
    if role == "canary":
        commands.append(f"curl -s {http}/metrics | grep tsdb_canary")
    return commands


def _credentials(settings: ProcessSettings) -> str:
    tls = " --tls-ca CA.pem" if settings.tls_cert_file else ""
    certificate = " --tls-cert CERT.pem --tls-key KEY.pem" if settings.tls_client_ca_file else ""
    return tls + certificate + (" --token-file FILE" if settings.token or settings.token_file else "")


def _log(settings: ProcessSettings) -> str:
    values = effective(settings)
    prefix = f" --log-prefix {values['log_prefix']}" if values["log_prefix"] else ""
    return f"--log {values['log']}{prefix}"
