"""Alerts as a fold over the values of a rule: inactive, pending, firing. Pure: a step gives the next state.

The rules of Prometheus hold: a pending alert fires once its condition held for `for`; a firing alert whose condition
ends fires on for `keep_firing_for`, then is resolved and remembered for RESOLVED_MS, so that senders can say so.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from tsdb.rules.files import ALERT_NAME, AlertingRule
from tsdb.selector.selectors import METRIC_NAME

Labels: TypeAlias = tuple[tuple[str, str], ...]  # Sorted by name, without empty values.

RESOLVED_MS = 15 * 60 * 1000
ALERTS = "ALERTS"
ALERTS_FOR_STATE = "ALERTS_FOR_STATE"
STATE_LABEL = "alertstate"


class AlertState(enum.Enum):
    """The values are those of the label `alertstate` and of the HTTP API."""

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"


@dataclass(frozen=True, slots=True)
class FoundAlert:
    """The condition of an alert holds for one series. labels: those of the alert."""

    labels: Labels
    annotations: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Alert:
    """labels: with the name of the alert. active_at_ms: since when the condition holds. An inactive alert has been
    resolved at resolved_at_ms. kept_since_ms: since when it fires without its condition."""

    labels: Labels
    annotations: Mapping[str, str]
    value: float
    state: AlertState
    active_at_ms: int
    fired_at_ms: int | None = None
    resolved_at_ms: int | None = None
    kept_since_ms: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether it is pending or firing."""
        return self.state is not AlertState.INACTIVE


Alerts: TypeAlias = Mapping[Labels, Alert]


def next_alerts(
    rule: AlertingRule, before: Alerts, found: Mapping[Labels, FoundAlert], at_ms: int
) -> dict[Labels, Alert]:
    """The alerts after an evaluation at at_ms that found these conditions."""
    after: dict[Labels, Alert] = {}
    for labels in (*before, *(labels for labels in found if labels not in before)):
        known, condition = before.get(labels), found.get(labels)
        alert = _absent(rule, known, at_ms) if condition is None else _present(known, condition, at_ms)
        if alert is None:
            continue
        if alert.state is AlertState.PENDING and at_ms - alert.active_at_ms >= rule.for_ms:
            alert = replace(alert, state=AlertState.FIRING, fired_at_ms=at_ms)
        elif alert.state is AlertState.FIRING and at_ms - alert.active_at_ms < rule.for_ms:
            # A change of the rule has made `for` longer.
            alert = replace(alert, state=AlertState.PENDING, fired_at_ms=None, kept_since_ms=None)
        after[labels] = alert
    return after


def _present(known: Alert | None, condition: FoundAlert, at_ms: int) -> Alert:
    if known is not None and known.is_active:
        return replace(known, value=condition.value, annotations=condition.annotations, kept_since_ms=None)
    return Alert(condition.labels, condition.annotations, condition.value, AlertState.PENDING, at_ms)


def _absent(rule: AlertingRule, known: Alert | None, at_ms: int) -> Alert | None:
    assert known is not None, "an alert without a condition was known before"
    if known.state is AlertState.PENDING:
        return None
    if known.state is AlertState.FIRING:
        since_ms = at_ms if known.kept_since_ms is None else known.kept_since_ms
        if at_ms - since_ms < rule.keep_firing_for_ms:
            return replace(known, kept_since_ms=since_ms)
        return replace(known, state=AlertState.INACTIVE, resolved_at_ms=at_ms)
    assert known.resolved_at_ms is not None, "an inactive alert was resolved"
    return known if at_ms - known.resolved_at_ms <= RESOLVED_MS else None


def active(alerts: Alerts) -> list[Alert]:
    """The pending and firing alerts."""
    return [alert for alert in alerts.values() if alert.is_active]


def alert_series(alerts: Alerts) -> Iterator[tuple[Labels, float]]:
    """The series ALERTS and ALERTS_FOR_STATE of the active alerts. The second has the time since which the condition
    holds, in whole seconds."""
    for alert in active(alerts):
        labels = dict(alert.labels)
        yield _labels({**labels, METRIC_NAME: ALERTS, STATE_LABEL: alert.state.value}), 1.0
        yield _labels({**labels, METRIC_NAME: ALERTS_FOR_STATE}), float(alert.active_at_ms // 1000)


def alert_labels(rule: AlertingRule, series: Mapping[str, str], own: Mapping[str, str]) -> Labels:
    """Labels of an alert: those of its series without the name, then its own; an empty value removes a label."""
    return _labels({**series, METRIC_NAME: "", **own, ALERT_NAME: rule.name})


def _labels(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted((name, value) for name, value in labels.items() if value))
