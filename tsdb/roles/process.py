"""Runs a role as a process: the probes answer at once, the process waits for the log, then components start in order.

A log that is away at the start is not a failure: readiness shows it and the process retries, as Kubernetes expects.
Settings that differ from `meta`, or a missing topic, end the process with the reason.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tsdb.model.errors import Unavailable
from tsdb.ops.disk import disk_problem
from tsdb.ops.health import Liveness, PartitionHealth, Readiness
from tsdb.ops.http.bodies import BodyRoute, BodyRoutes, NoBodyRoutes
from tsdb.ops.interpreter import freeze_started
from tsdb.ops.lifecycle import Component, Deadline, Fallible, fallible_of
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import new_thread, tell_failure
from tsdb.roles.early_writes import EarlyWrites
from tsdb.ui.early_page import EarlyPage

if TYPE_CHECKING:  # A role without a gRPC server loads none.
    from tsdb.ops.grpc.server import GrpcServer

RETRY_S = 1.0
API = "/api/"
PAGE = "/"
OURS = frozenset({"bind"})  # Reasons that concern neither log nor history. Waiting does not help there.

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Opened:
    """An opened role: its components in start order, and functions for the probes.

    stalled: reason why the process is not alive; empty when it is. problem: reason and message why the whole
    process is not ready, even without partitions; empty without such a reason. bodies: routes of the HTTP server that
    take a body. grpc: the component that is the gRPC server, which refuses calls until its turn; None for a role
    without one.
    """

    components: Sequence[Component]
    partitions: Callable[[], dict[int, PartitionHealth]]
    stalled: Callable[[], str]
    problem: Callable[[], tuple[str, str]] = lambda: ("", "")
    bodies: BodyRoutes = field(default_factory=NoBodyRoutes)
    grpc: GrpcServer | None = None


def first_reason(*stalls: Callable[[], str]) -> Callable[[], str]:
    """A function that gives the first reason of these functions; empty when all are."""
    return lambda: next(filter(None, (stalled() for stalled in stalls)), "")


class RoleProcess:
    """A component that opens a role on a separate thread and then runs the role's components."""

    def __init__(self, open_role: Callable[[], Opened]) -> None:
        self._open_role = open_role
        self._thread = new_thread(self._open, "role")
        self._closing = threading.Event()
        self._lock = threading.Lock()  # Guards _started, and that a component is started or closed, not both.
        self._started: list[Component] = []
        self._opened: Opened | None = None
        self._fallible: Sequence[Fallible] = ()
        self._early_writes = EarlyWrites(self._refusal)
        self._early_page = EarlyPage(self._refusal)
        self._waiting = Readiness("starting")  # Its reason is empty once all has started.
        self._failure: BaseException | None = None
        # See BodyRoutes. Requests go to the routes of the role without a detour once it serves.
        self.route: Callable[[str, str], BodyRoute | None] = self._early_route

    def start(self) -> None:
        """Begin to open the role. Returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop intake, in reverse order of start. `join` waits for an opening that is still running."""
        self._closing.set()
        with self._lock:
            for component in reversed(self._started):
                component.close()

    def join(self, timeout_s: float) -> bool:
        """Drain the components in the order of `close`."""
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
        """Abort the components that still run."""
        while (component := self._last_started()) is not None:
            component.abort()

    def _last_started(self) -> Component | None:
        """Remove and return the component that started last. The opening may still add another."""
        with self._lock:
            return self._started.pop() if self._started else None

    def failure(self) -> BaseException | None:
        """The exception of the opening or of a component; None while all work."""
        if self._failure is not None:
            return self._failure
        return next(filter(None, (component.failure() for component in self._fallible)), None)

    def readiness(self) -> Readiness:
        """Ready when opened, not draining, and every partition is ready."""
        if self._closing.is_set():
            return Readiness("draining")
        waiting = self._waiting
        if self._opened is None or waiting.reason:
            return waiting
        disk = disk_problem()
        reason, message = disk or self._opened.problem()
        return Readiness(reason, self._opened.partitions(), message)

    def _early_route(self, method: str, path: str) -> BodyRoute | None:
        """Until the role serves, a POST and a request of an API are refused with the reason, and a role with pages
        shows it."""
        opened = self._opened
        if method == "POST" or path.startswith(API):
            return self._early_writes
        has_page = path == PAGE and opened is not None and opened.bodies.route(method, path) is not None
        return self._early_page if has_page else None

    def grpc_port(self) -> int | None:
        """The bound gRPC port; None before the opening, and for a role without gRPC."""
        server = self._opened.grpc if self._opened else None
        return None if server is None else server.port

    def liveness(self) -> Liveness:
        """Alive while the components make progress. A wait for the log needs no restart."""
        stalled = self._opened.stalled() if self._opened else ""
        return Liveness(not stalled, stalled)

    def _open(self) -> None:
        try:
            opened = self._wait_for_log()
            if opened is None:
                return
            self._opened = opened
            self._fallible = fallible_of(opened.components)
            if opened.grpc is not None:
                self._start(_EarlyAnswers(opened.grpc, self._refusal))
            freeze_started()
            for component in opened.components:
                self._start(component)
            self.route = opened.bodies.route
            self._waiting = Readiness()
        except BaseException as error:
            self._failure = error
            tell_failure()

    def _refusal(self) -> Unavailable:
        """The error of a call that comes before the role serves."""
        return Unavailable("the role is starting", reason="starting", retry_after_s=RETRY_S)

    def _start(self, component: Component) -> None:
        # Under the lock, so that `close` closes each started component, and a later one is closed here.
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
                if self._waiting.reason != error.reason:
                    log.warning("not available yet; retrying", reason=error.reason, error=error.message)
                self._waiting = Readiness(error.reason, message=error.message)
                self._closing.wait(RETRY_S)
        return None


class _EarlyAnswers(Component):
    """The gRPC server before its turn among the components: calls are refused, also after `close`. Ends a server that
    never started."""

    def __init__(self, server: GrpcServer, refusal: Callable[[], Unavailable]) -> None:
        self._server = server
        self._refusal = refusal

    def start(self) -> None:
        self._server.listen(self._refusal)

    def join(self, timeout_s: float) -> bool:
        self._server.close()
        return self._server.join(timeout_s)

    def abort(self) -> None:
        self._server.abort()
