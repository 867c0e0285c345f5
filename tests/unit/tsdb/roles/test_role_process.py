"""A role waits for log and history, and ends on any other error."""

from __future__ import annotations

from support.servers.logs import wait_until
from tsdb.model.errors import Unavailable
from tsdb.ops.health import Readiness
from tsdb.roles.process import Opened, RoleProcess

WITHIN_S = 60.0


def test_a_port_in_use_is_a_failure_at_once() -> None:
    tries = []

    def open_role() -> Opened:
        tries.append(1)
        raise Unavailable("cannot listen on h:1 for gRPC", reason="bind")

    process = RoleProcess(open_role)
    process.start()
    # The thread ends by itself: nothing closes the process before.
    assert process.join(WITHIN_S)
    failure = process.failure()
    assert isinstance(failure, Unavailable)
    assert failure.reason == "bind"
    assert len(tries) == 1


def test_a_log_that_is_away_is_waited_for_and_shows_in_readiness() -> None:
    def open_role() -> Opened:
        raise Unavailable("no broker answers at h:1", reason="brokers_away")

    process = RoleProcess(open_role)
    process.start()
    wait_until(lambda: process.readiness().reason == "brokers_away", WITHIN_S)
    assert process.readiness() == Readiness("brokers_away", message="no broker answers at h:1")
    assert process.failure() is None
    process.close()
    assert process.join(WITHIN_S)
    assert process.failure() is None
