"""Alerts are a fold over the values of their rule: tables of steps, one letter a state."""

from __future__ import annotations

import pytest

from tsdb.rules.alerts import RESOLVED_MS, Alert, AlertState, FoundAlert, Labels, alert_series, next_alerts
from tsdb.rules.files import AlertingRule, parse_rules

STEP_MS = 60_000
LABELS: Labels = (("alertname", "A"), ("job", "a"))
LETTERS = {None: ".", AlertState.PENDING: "p", AlertState.FIRING: "F", AlertState.INACTIVE: "r"}


def rule(**fields: str) -> AlertingRule:
    extra = "".join(f", {name}: {value}" for name, value in fields.items())
    text = f"groups: [{{name: g, rules: [{{alert: A, expr: x{extra}}}]}}]"
    (found,) = parse_rules(text.encode(), "f").groups[0].rules
    assert isinstance(found, AlertingRule)
    return found


def steps(alerting: AlertingRule, conditions: str) -> list[Alert | None]:
    """The alert after each step. conditions: x where the condition holds."""
    alerts: dict[Labels, Alert] = {}
    after = []
    for step, condition in enumerate(conditions):
        found = {LABELS: FoundAlert(LABELS, {"step": str(step)}, float(step))} if condition == "x" else {}
        alerts = next_alerts(alerting, alerts, found, step * STEP_MS)
        after.append(alerts.get(LABELS))
    return after


@pytest.mark.parametrize(
    ("fields", "conditions", "expected"),
    [
        ({}, "-xx--", ".FFrr"),
        ({"for": "2m"}, "xxxxx", "ppFFF"),
        ({"for": "2m"}, "xx-xxx", "pp.ppF"),
        ({"for": "2m"}, "xxx-x", "ppFrp"),
        ({"for": "90s"}, "xxxx", "ppFF"),
        ({"keep_firing_for": "2m"}, "x----", "FFFrr"),
        ({"keep_firing_for": "2m"}, "x--x--", "FFFFFF"),
        ({"keep_firing_for": "2m"}, "x--x---", "FFFFFFr"),
        ({"for": "1m", "keep_firing_for": "1m"}, "x-xx--x", "p.pFFrp"),
        ({}, "x-x", "FrF"),
    ],
)
def test_states_follow_the_condition(fields: dict[str, str], conditions: str, expected: str) -> None:
    found = steps(rule(**fields), conditions)
    assert "".join(LETTERS[alert.state if alert else None] for alert in found) == expected


def test_a_resolved_alert_is_forgotten_after_a_quarter_of_an_hour() -> None:
    found = steps(rule(), "x" + "-" * 20)
    assert [alert is None for alert in found].index(True) == 1 + RESOLVED_MS // STEP_MS + 1


def test_an_active_alert_keeps_its_times_and_takes_the_newest_value() -> None:
    *_, last = steps(rule(**{"for": "2m"}), "-xxxx")
    assert last is not None
    assert (last.active_at_ms, last.fired_at_ms, last.value, last.annotations) == (60_000, 180_000, 4.0, {"step": "4"})


def test_a_kept_alert_has_its_last_value_and_the_time_since_which_it_is_kept() -> None:
    *_, last = steps(rule(keep_firing_for="5m"), "xx--")
    assert last is not None
    assert (last.value, last.kept_since_ms) == (1.0, 120_000)


def test_the_series_of_alerts_have_state_and_seconds() -> None:
    (alert,) = (one for one in steps(rule(), "-x")[1:] if one is not None)
    resolved = steps(rule(), "x-")[1]
    assert resolved is not None
    assert list(alert_series({LABELS: alert})) == [
        ((("__name__", "ALERTS"), ("alertname", "A"), ("alertstate", "firing"), ("job", "a")), 1.0),
        ((("__name__", "ALERTS_FOR_STATE"), ("alertname", "A"), ("job", "a")), 60.0),
    ]
    assert list(alert_series({LABELS: resolved})) == []
