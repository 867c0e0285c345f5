"""The gateway as a component: a drain answers what was taken, refuses the rest, and loses no acknowledged sample."""

from __future__ import annotations

import threading

import pytest

from ingest.gateway import Gateway
from ingest.limits import IngestLimits
from support.fakes.fake_log import FakeLog
from support.servers.gateway_server import call, gateway_server, ingest_stub, write_request
from support.servers.gateways import NOW_MS, label_set
from support.servers.logs import wait_until
from tsdb.log.interface import METRICS
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Unavailable
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION
from tsdb.ops.lifecycle import Component, Fallible


def gateway() -> tuple[Gateway, FakeLog]:
    clock = ManualClock(NOW_MS)
    log = FakeLog(4, clock)
    return Gateway(log, PlacementRule(), 4, PRODUCTION, IngestLimits(), clock), log


def test_it_is_a_component() -> None:
    made, _ = gateway()
    component: Component = made
    component.start()
    component.close()
    assert component.join(60.0)


def test_a_drain_answers_what_was_taken_and_refuses_the_rest() -> None:
    made, log = gateway()
    made.start()
    with gateway_server(made.pipeline) as server, ingest_stub(server.port) as stub:
        call(stub, write_request([label_set(0)], [NOW_MS]))
        log.hold(METRICS)
        answers: list[int] = []
        request = write_request([label_set(0)], [NOW_MS + 1])
        taken = threading.Thread(target=lambda: answers.append(call(stub, request).samples))
        taken.start()
        wait_until(lambda: log.waiting == 1)
        made.close()
        with pytest.raises(Unavailable) as caught:
            call(stub, write_request([label_set(0)], [NOW_MS + 2]))
        assert caught.value.reason == "draining"
        assert caught.value.retry_after_s
        assert made.join(0.01) is False
        log.release()
        assert made.join(60.0) is True
        taken.join(60.0)
    assert answers == [1]
    assert {ts_ms for _, ts_ms in log.samples()} == {NOW_MS, NOW_MS + 1}


def test_close_before_start_and_abort_with_work_left_end() -> None:
    made, log = gateway()
    made.start()
    log.hold(METRICS)
    with pytest.raises(Unavailable), gateway_server(made.pipeline) as server, ingest_stub(server.port) as stub:
        call(stub, write_request([label_set(0)], [NOW_MS]), timeout_s=1.0)
    made.close()
    assert made.join(0.01) is False
    made.abort()
    log.release()
    other, _ = gateway()
    other.close()
    assert other.join(0.0)


def test_a_timer_without_its_thread_is_a_failure_of_the_gateway() -> None:
    made, _ = gateway()
    component: Fallible = made
    assert component.failure() is None

    def end_thread() -> None:
        raise SystemExit("a call that ends its thread")

    made.pipeline._thread_timer.after(0.0, end_thread)
    wait_until(lambda: component.failure() is not None)
