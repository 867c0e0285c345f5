"""A role waits for log and history, and ends on any other error."""

from __future__ import annotations

import threading

from tsdb.model.errors import Unavailable
from tsdb.roles.process import Opened, RoleProcess

WITHIN_S = 30.0


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
    tried = threading.Event()

    def open_role() -> Opened:
        tried.set()
        raise Unavailable("no broker answers", reason="brokers_away")

    process = RoleProcess(open_role)
    process.start()
    assert tried.wait(WITHIN_S)
    assert process.failure() is None
    process.close()
    assert process.join(WITHIN_S)
    assert process.failure() is None
