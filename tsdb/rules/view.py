"""Shows groups, rules and alerts as Prometheus's HTTP API does: plain values for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tsdb.promql.syntax.printer import shown
from tsdb.rules.alerts import Alert, active
from tsdb.rules.files import AlertingRule, Rule
from tsdb.rules.groups import RuleState, rule_state
from tsdb.rules.repair import RepairNote
from tsdb.rules.schedule import ScheduledGroup
from tsdb.rules.templates.template import Template

_NEVER = "0001-01-01T00:00:00Z"


def shown_groups(groups: Sequence[ScheduledGroup]) -> list[dict[str, Any]]:
    """The groups in the order of their files and names."""
    return [_group(one) for one in sorted(groups, key=lambda one: (one.group.file, one.group.name))]


def _group(one: ScheduledGroup) -> dict[str, Any]:
    group = one.group
    return {
        "name": group.name,
        "file": group.file,
        "rules": [
            _rule(rule, state, one.repairs.notes.get(number, ()))
            for number, (rule, state) in enumerate(zip(group.rules, one.state.rules, strict=True))
        ],
        "interval": group.interval_ms / 1000,
        "limit": group.limit,
        "evaluationTime": one.seconds,
        "lastEvaluation": _time(one.evaluated_at_ms),
        # Beside Prometheus's fields: the time up to which the group is evaluated, its next time, when all samples of
        # that should be readable, why it waits, how many steps of its rules are to be evaluated again, and the
        # partitions that its rules can read; null for all.
        "evaluatedThrough": _time(one.evaluated_ms),
        "nextEvaluation": _time(one.next_ms),
        "dueAt": _time(one.due_ms),
        "waitsFor": one.waits_for,
        "repairing": one.repairing,
        "partitions": None if one.partitions is None else sorted(one.partitions),
    }


def _rule(rule: Rule, state: RuleState, notes: Sequence[RepairNote]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": rule.name, "query": shown(rule.query.node), "labels": _texts(rule.labels)}
    if isinstance(rule, AlertingRule):
        found |= {
            "state": rule_state(state).value,
            "duration": rule.for_ms / 1000,
            "keepFiringFor": rule.keep_firing_for_ms / 1000,
            "annotations": _texts(rule.annotations),
            "alerts": [_alert(alert) for alert in active(state.alerts)],
            "corrections": [_correction(note) for note in reversed(notes)],
        }
    found |= {
        "health": "err" if state.error else "unknown" if state.evaluated_at_ms is None else "ok",
        "evaluationTime": state.seconds,
        "lastEvaluation": _time(state.evaluated_at_ms),
        "samples": state.samples,
        "type": "alerting" if isinstance(rule, AlertingRule) else "recording",
    }
    return {**found, "lastError": state.error} if state.error else found


def _alert(alert: Alert) -> dict[str, Any]:
    found = {
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "state": alert.state.value,
        "activeAt": _time(alert.active_at_ms),
        "value": _exponent(alert.value),
    }
    return found if alert.kept_since_ms is None else {**found, "keepFiringSince": _time(alert.kept_since_ms)}


def _correction(note: RepairNote) -> dict[str, Any]:
    """The steps at which late samples changed an alert, with the state before and after."""
    return {
        "labels": dict(note.labels),
        "from": _time(note.from_ms),
        "through": _time(note.through_ms),
        "was": note.was,
        "now": note.now,
        "correctedAt": _time(note.noted_ms),
    }


def _texts(values: Mapping[str, str] | Mapping[str, Template]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else value.text for name, value in values.items()}


def _time(ms: int | None) -> str:
    if ms is None:
        return _NEVER
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    fraction = f".{ms % 1000:03d}".rstrip("0") if ms % 1000 else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _exponent(value: float) -> str:
    """A number as Go's format `e` with the shortest digits: 1.5e+00."""
    if value != value or value in (float("inf"), float("-inf")):
        return "NaN" if value != value else "+Inf" if value > 0 else "-Inf"
    return next(text for text in (f"{value:.{places}e}" for places in range(18)) if float(text) == value)
