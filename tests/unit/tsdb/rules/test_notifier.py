"""Alertmanagers get each firing alert, again while it fires, and its end once; one that is away delays no other."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.senders.post_server import PostServer
from support.servers.logs import wait_until
from tsdb.model.clock import ManualClock
from tsdb.rules.alerts import Alert, AlertState, Labels
from tsdb.rules.files import parse_rules
from tsdb.rules.groups import RuleGroupState, RuleState
from tsdb.rules.notifier import BATCH_ALERTS, RESEND_S, AlertmanagerAccess, Notifier
from tsdb.rules.schedule import ScheduledGroup

NOW_MS = 1_700_000_000_000
WITHIN_S = 30.0
(GROUP,) = parse_rules(b"groups: [{name: g, interval: 10s, rules: [{alert: A, expr: x > 5}]}]", "f").groups


class Taker:
    """An Alertmanager that keeps what it gets. gate: each request waits for it."""

    def __init__(self, status: int = 200) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()
        self.alerts: list[dict[str, Any]] = []
        self.server = PostServer(self._take, status)

    def _take(self, body: bytes) -> None:
        self.asked.set()
        self.gate.wait(WITHIN_S)
        self.alerts += json.loads(body)

    @property
    def url(self) -> str:
        return f"http://{self.server.address}/prefix/"

    def ends(self) -> list[str]:
        return [alert["endsAt"] for alert in self.alerts]


@contextmanager
def notifier(*takers: Taker, clock: ManualClock) -> Iterator[Notifier]:
    external = {"cluster": "c", "job": "replaced by that of the alert"}
    found = Notifier([AlertmanagerAccess(taker.url) for taker in takers], "http://x/p/", clock, external)
    for taker in takers:
        taker.server.__enter__()
    try:
        found.start()
        yield found
    finally:
        for taker in takers:
            taker.gate.set()
        found.close()
        assert found.join(WITHIN_S)
        for taker in takers:
            taker.server.__exit__()


def group(state: AlertState, *names: str, resolved_at_ms: int | None = None) -> ScheduledGroup:
    alerts = {}
    for name in names or ("j",):
        labels: Labels = (("alertname", "A"), ("job", name))
        fired_ms = NOW_MS - 10_000
        alerts[labels] = Alert(labels, {"s": "t"}, 6.0, state, NOW_MS - 20_000, fired_ms, resolved_at_ms)
    return ScheduledGroup(GROUP, RuleGroupState((RuleState(alerts=alerts),)))


def test_a_firing_alert_has_the_form_of_the_api() -> None:
    clock, taker = ManualClock(NOW_MS), Taker()
    with notifier(taker, clock=clock) as found:
        assert found.urls == [f"http://{taker.server.address}/prefix/api/v2/alerts"]
        found.update(group(AlertState.PENDING))
        found.update(group(AlertState.FIRING))
        wait_until(lambda: bool(taker.alerts), WITHIN_S)
    assert taker.alerts == [
        {
            "labels": {"alertname": "A", "cluster": "c", "job": "j"},
            "annotations": {"s": "t"},
            "startsAt": "2023-11-14T22:13:10.000Z",
            "endsAt": "2023-11-14T22:17:20.000Z",  # Four times RESEND_S from now on.
            "generatorURL": "http://x/p/graph?g0.expr=x+%3E+5&g0.tab=1",
        }
    ]


def test_a_firing_alert_is_sent_again_and_a_resolved_one_once() -> None:
    clock, taker = ManualClock(NOW_MS), Taker()
    with notifier(taker, clock=clock) as found:
        found.update(group(AlertState.FIRING))
        wait_until(lambda: len(taker.alerts) == 1, WITHIN_S)
        found.update(group(AlertState.FIRING))
        clock.advance(round(RESEND_S * 1000))
        found.update(group(AlertState.FIRING))
        wait_until(lambda: len(taker.alerts) == 2, WITHIN_S)
        ended = group(AlertState.INACTIVE, resolved_at_ms=NOW_MS + 1_000)
        found.update(ended)
        wait_until(lambda: len(taker.alerts) == 3, WITHIN_S)
        found.update(ended)
        clock.advance(round(2 * RESEND_S * 1000))
        found.update(group(AlertState.FIRING, "other"))
        wait_until(lambda: len(taker.alerts) == 4, WITHIN_S)
    assert taker.ends()[2] == "2023-11-14T22:13:21.000Z"
    assert [alert["labels"]["job"] for alert in taker.alerts] == ["j", "j", "j", "other"]


@pytest.mark.parametrize("gone", ["rule", "group"])
def test_alerts_of_what_is_gone_are_resolved(gone: str) -> None:
    clock, taker = ManualClock(NOW_MS), Taker()
    with notifier(taker, clock=clock) as found:
        found.update(group(AlertState.FIRING))
        wait_until(lambda: len(taker.alerts) == 1, WITHIN_S)
        clock.advance(5_000)
        if gone == "group":
            found.remove(GROUP.key)
        else:
            found.update(ScheduledGroup(GROUP, RuleGroupState((RuleState(),))))
        wait_until(lambda: len(taker.alerts) == 2, WITHIN_S)
    assert taker.ends()[1] == "2023-11-14T22:13:25.000Z"


def test_an_alertmanager_that_hangs_delays_no_other() -> None:
    clock, hanging, taker = ManualClock(NOW_MS), Taker(), Taker()
    hanging.gate.clear()
    with notifier(hanging, taker, clock=clock) as found:
        found.update(group(AlertState.FIRING))
        wait_until(lambda: hanging.asked.is_set() and len(taker.alerts) == 1, WITHIN_S)
        found.update(group(AlertState.INACTIVE, resolved_at_ms=NOW_MS))
        wait_until(lambda: len(taker.alerts) == 2, WITHIN_S)
        assert hanging.alerts == []


def test_an_alertmanager_that_fails_gets_what_holds_when_it_is_back() -> None:
    clock, failing = ManualClock(NOW_MS), Taker(500)
    with notifier(failing, clock=clock) as found:
        found.update(group(AlertState.FIRING))
        wait_until(lambda: len(failing.alerts) == 1, WITHIN_S)
        found.update(group(AlertState.FIRING))  # Wakes the sender, which tries again.
        wait_until(lambda: len(failing.alerts) == 2, WITHIN_S)


def test_many_alerts_come_in_several_requests() -> None:
    clock, taker = ManualClock(NOW_MS), Taker()
    with notifier(taker, clock=clock) as found:
        found.update(group(AlertState.FIRING, *(str(number) for number in range(2 * BATCH_ALERTS + 1))))
        wait_until(lambda: len(taker.alerts) == 2 * BATCH_ALERTS + 1, WITHIN_S)
    assert len({alert["labels"]["job"] for alert in taker.alerts}) == 2 * BATCH_ALERTS + 1
