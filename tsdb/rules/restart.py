"""Restores the state of a group from the series that an earlier process wrote; nothing else is stored.

The rules are evaluated again at the last time: that gives the series of each rule, and which alerts are its own. Since
when an alert is active is in ALERTS_FOR_STATE, whether it fires in ALERTS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tsdb.model.labels import parse_labels
from tsdb.model.selector import Matcher, MatchType
from tsdb.model.stale import STALE_BITS
from tsdb.promql.evaluate.storage import Storage
from tsdb.rules.alerts import (
    ALERTS,
    ALERTS_FOR_STATE,
    STATE_LABEL,
    Alert,
    AlertState,
    Labels,
    alert_series,
)
from tsdb.rules.files import ALERT_NAME, AlertingRule, RuleGroup
from tsdb.rules.groups import (
    RuleGroupState,
    RuleState,
    RuleSurroundings,
    conditions,
    evaluate_group,
    evaluate_rule,
    new_state,
)
from tsdb.selector.selectors import METRIC_NAME

KEPT_STEPS_MAX = 1_000  # Steps back in which the end of a kept alert's condition is searched.


def evaluated_steps(
    storage: Storage, labels: Mapping[str, str], start_ms: int, end_ms: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Times, ascending, and values of the samples of a series in [start_ms, end_ms]."""
    matchers = [Matcher(MatchType.EQUAL, name, value) for name, value in labels.items()]
    found = storage.select(matchers, start_ms, end_ms)
    return found.ts_ms, found.values


def restored_state(
    group: RuleGroup, last_ms: int, offset_ms: int, storage: Storage, surroundings: RuleSurroundings
) -> RuleGroupState:
    """The state after the evaluation at last_ms. Raises the errors of reads."""
    state = evaluate_group(group, new_state(group), last_ms, offset_ms, surroundings)
    rules = [
        _restored_alerts(rule, group, one, last_ms, offset_ms, storage, surroundings)
        if isinstance(rule, AlertingRule)
        else one
        for rule, one in zip(group.rules, state.rules, strict=True)
    ]
    return RuleGroupState(tuple(rules))


def restored_rule(
    rule: AlertingRule,
    group: RuleGroup,
    last_ms: int,
    offset_ms: int,
    storage: Storage,
    surroundings: RuleSurroundings,
) -> RuleState:
    """The state of one rule after the evaluation at last_ms. Raises TsdbError."""
    state, _ = evaluate_rule(rule, group.limit, RuleState(), last_ms, last_ms - offset_ms, surroundings)
    return _restored_alerts(rule, group, state, last_ms, offset_ms, storage, surroundings)


def _restored_alerts(
    rule: AlertingRule,
    group: RuleGroup,
    state: RuleState,
    last_ms: int,
    offset_ms: int,
    storage: Storage,
    surroundings: RuleSurroundings,
) -> RuleState:
    ts_ms = last_ms - offset_ms
    since, states = _values(storage, ALERTS_FOR_STATE, rule.name, ts_ms), _values(storage, ALERTS, rule.name, ts_ms)
    firing = {_without(labels, STATE_LABEL) for labels in states if dict(labels)[STATE_LABEL] == "firing"}
    alerts: dict[Labels, Alert] = {}
    for labels, alert in state.alerts.items():
        if labels in since:
            alert = replace(alert, active_at_ms=int(since[labels]) * 1000, state=AlertState.PENDING, fired_at_ms=None)
            if labels in firing:
                alert = replace(alert, state=AlertState.FIRING, fired_at_ms=max(last_ms, alert.active_at_ms))
        alerts[labels] = alert
    if rule.keep_firing_for_ms:
        alerts.update(_kept(rule, group, firing - alerts.keys(), since, last_ms, offset_ms, surroundings))
    return replace(state, alerts=alerts, series=frozenset(labels for labels, _ in alert_series(alerts)))


def _kept(
    rule: AlertingRule,
    group: RuleGroup,
    candidates: set[Labels],
    since: Mapping[Labels, float],
    last_ms: int,
    offset_ms: int,
    surroundings: RuleSurroundings,
) -> dict[Labels, Alert]:
    """Alerts that fire on without their condition: it held at most keep_firing_for before."""
    found: dict[Labels, Alert] = {}
    steps = min(rule.keep_firing_for_ms // group.interval_ms + 1, KEPT_STEPS_MAX)
    for step in range(1, steps + 1):
        left = candidates - found.keys()
        if not left:
            break
        at_ms = last_ms - step * group.interval_ms
        held = conditions(rule, at_ms - offset_ms, surroundings)
        for labels in left & held.keys() & since.keys():
            one = held[labels]
            found[labels] = Alert(
                labels,
                one.annotations,
                one.value,
                AlertState.FIRING,
                int(since[labels]) * 1000,
                fired_at_ms=last_ms,
                kept_since_ms=at_ms + group.interval_ms,
            )
    return found


def _values(storage: Storage, metric: str, alert: str, ts_ms: int) -> dict[Labels, float]:
    """Values of the series of an alert at a time, by labels without the name of the metric."""
    matchers = [Matcher(MatchType.EQUAL, METRIC_NAME, metric), Matcher(MatchType.EQUAL, ALERT_NAME, alert)]
    found = storage.select(matchers, ts_ms, ts_ms)
    is_stale = found.values.view(np.int64) == STALE_BITS
    return {
        _without(parse_labels(labels), METRIC_NAME): float(found.values[start])
        for labels, start, end in zip(found.labels, found.starts[:-1].tolist(), found.starts[1:].tolist(), strict=True)
        if start < end and not is_stale[start]
    }


def _without(labels: Labels, name: str) -> Labels:
    return tuple(pair for pair in labels if pair[0] != name)
