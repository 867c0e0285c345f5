"""A role as a process: probes answer from the first moment, the log is waited for, then everything starts in order.

The log being away at start is not a failure: the process says so through readiness and keeps trying, as Kubernetes
expects. Settings that differ from `meta`, or a topic that is not there, end it with the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tsdb.model.errors import Unavailable
from tsdb.ops.disk import disk_trouble
from tsdb.ops.health import Liveness, PartitionHealth, Readiness
from tsdb.ops.lifecycle import Component, Deadline, Fallible
from tsdb.ops.logs import get_logger

RETRY_S = 1.0
OURS = frozenset({"bind"})  # Reasons that are not the log's or the history's: waiting for them helps nobody.

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Opened:
    """What a role runs once its log is there: components in start order, and what the probes ask them.

    trouble: why the process as a whole is not ready, also without a partition of its own; empty when it may be.
    """

    components: Sequence[Component]
    partitions: Callable[[], dict[int, PartitionHealth]]
    stalled: Callable[[], str]
    trouble: Callable[[], str] = lambda: ""


class RoleProcess:
    """A component that opens a role on a thread of its own and then runs its components."""

    def __init__(self, open_role: Callable[[], Opened]) -> None:
        self._open_role = open_role
        self._thread = threading.Thread(target=self._open, name="role", daemon=True)
        self._closing = threading.Event()
        self._lock = threading.Lock()  # Guards _started, and that a component is started or closed, not both.
        self._started: list[Component] = []
        self._opened: Opened | None = None
        self._waiting_for = "starting"
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Begin to open; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop intake, last started first. An opening under way ends by itself; `join` waits for it."""
        self._closing.set()
        with self._lock:
            for component in reversed(self._started):
                component.close()

    def join(self, timeout_s: float) -> bool:
        """Drain in the order of closing."""
        deadline = Deadline.after(timeout_s)
        self._thread.join(deadline.remaining())
        if self._thread.is_alive():
            return False
        while self._started:
            if self._started[-1].join(deadline.remaining()) is False:
                return False
            self._started.pop()
        return True

    def abort(self) -> None:
        """Drop what is left."""
        while self._started:
            self._started.pop().abort()

    def failure(self) -> BaseException | None:
        """What broke the opening or a component."""
        if self._failure is not None:
            return self._failure
        components = self._opened.components if self._opened else ()
        failures = (component.failure() for component in components if isinstance(component, Fallible))
        return next(filter(None, failures), None)

    def readiness(self) -> Readiness:
        """Ready when opened, not draining, and every partition is ready."""
        if self._closing.is_set():
            return Readiness("draining")
        if self._opened is None or self._waiting_for:
            return Readiness(self._waiting_for)
        disk = disk_trouble()
        reason, message = disk or (self._opened.trouble(), "")
        return Readiness(reason, self._opened.partitions(), message)

    def grpc_port(self) -> int | None:
        """The port that gRPC is bound to; None while nothing is opened, and for a role without."""
        from tsdb.ops.grpc_server import GrpcServer  # Imported here: a client command must not pay for servers.

        components = self._opened.components if self._opened else ()
        return next((component.port for component in components if isinstance(component, GrpcServer)), None)

    def liveness(self) -> Liveness:
        """Alive while it moves; waiting for the log is nothing to restart for."""
        stalled = self._opened.stalled() if self._opened else ""
        return Liveness(not stalled, stalled)

    def _open(self) -> None:
        try:
            opened = self._wait_for_log()
            if opened is None:
                return
            self._opened = opened
            for component in opened.components:
                self._start(component)
            self._waiting_for = ""
        except Exception as error:
            self._failure = error

    def _start(self, component: Component) -> None:
        # Under the lock, so that each component is either closed by `close` or, when it comes too late, here.
        with self._lock:
            self._started.append(component)
            if self._closing.is_set():
                component.close()
            else:
                component.start()

    def _wait_for_log(self) -> Opened | None:
        while not self._closing.is_set():
            try:
                return self._open_role()
            except Unavailable as error:
                if error.reason in OURS:
                    raise
                if self._waiting_for != error.reason:
                    log.warning("log not to be had yet; trying again", reason=error.reason, error=error.message)
                self._waiting_for = error.reason
                self._closing.wait(RETRY_S)
        return None
