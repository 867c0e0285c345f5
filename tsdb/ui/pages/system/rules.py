"""Rules: shows how far each group of the ruler is evaluated and what it costs, the alerts, and each rule with its
last result. Rules that fail come first, then those whose alerts fire or are pending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from tsdb.model.times import parse_time
from tsdb.promql.syntax.features import Features
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.printer import shown
from tsdb.promql.syntax.tree import Binary, Expression, NumberLiteral, Paren, Unary
from tsdb.selector.selectors import METRIC_NAME
from tsdb.selector.tokens import QueryError, quoted
from tsdb.ui.link import QUERY_CHARS_MAX, TITLE_CHARS_MAX, VERSION
from tsdb.ui.pages.page import PageCall
from tsdb.ui.pages.system.grid import Cell, Column, Grid, duration, number, time, visible

ROWS_MAX = 200  # Groups, alerts, rules of one page.
_LATE_MS = 60_000  # A group is late after this time, or its interval where that is longer.
_GRAPHED = "1h"
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">="})
_URGENCY = {"err": 0, "firing": 1, "pending": 2}

_GROUP_COLUMNS = (
    Column("group", "The group alone, with all its rules."),
    Column("file"),
    Column("rules", is_number=True),
    Column("every", is_number=True),
    Column("evaluated through", "All times up to this one are evaluated.", is_time=True),
    Column("next", "The next time to be evaluated, once all samples of it are readable.", is_time=True),
    Column("lag", "Time since all samples of the next time should be readable.", is_number=True),
    Column("cost", "Seconds of the last evaluation.", is_number=True),
    Column("samples", "Series that the last evaluation wrote.", is_number=True),
    Column("to repair", "Steps that are evaluated again, because samples came late.", is_number=True),
    Column("waits for"),
)
_ALERT_COLUMNS = (
    Column("alert", "Its graph, with the times at which it fired."),
    Column("state"),
    Column("since", is_time=True),
    Column("value", is_number=True),
    Column("labels"),
)
_CORRECTION_COLUMNS = (
    Column("alert"),
    Column("labels"),
    Column("from", is_time=True),
    Column("through", is_time=True),
    Column("was"),
    Column("is now"),
    Column("corrected", is_time=True),
)
_RULE_COLUMNS = (
    Column("rule", "Its graph; of an alert with the times at which it fired."),
    Column("group"),
    Column("state"),
    Column("expression"),
    Column("last evaluation", is_time=True),
    Column("cost", is_number=True),
    Column("samples", "Series that the last evaluation wrote.", is_number=True),
    Column("error"),
)


@dataclass(frozen=True, slots=True)
class _GroupRule:
    """A rule and its group, as `/api/v1/rules` has them."""

    group: Mapping[str, Any]
    rule: Mapping[str, Any]

    @property
    def state(self) -> str:
        """err, unknown, ok; of an alert that is evaluated: inactive, pending, firing."""
        health: str = self.rule["health"]
        return self.rule.get("state", health) if health == "ok" else health


def values(asked: PageCall) -> Mapping[str, Any]:
    """The variables of the template. `group`: FILE;GROUP, the only group to show; "" for all."""
    wanted = asked.call.form.get("group")
    known = asked.call.sources.rule_groups()
    every = known.groups
    groups = [one for one in every if not wanted or _key(one) == wanted]
    rules = [_GroupRule(group, rule) for group in groups for rule in group["rules"]]
    sources = asked.call.sources
    now_ms, asks_rulers = sources.clock.now_ms(), bool(sources.settings().get("rulers"))
    features = asked.call.options.query.features
    return {
        "has_groups": bool(every),
        "has_ruler": bool(every or sources.settings().get("rules") or asks_rulers),
        "asks_rulers": asks_rulers,
        "group": visible(wanted),
        "words": [
            *(Cell(visible(text), is_bad=True) for text in known.warnings),
            *(words(groups, rules, now_ms) if every else ()),
        ],
        "grids": _grids(groups, rules, now_ms, features) if every else [],
    }


def _grids(
    groups: Sequence[Mapping[str, Any]], rules: Sequence[_GroupRule], now_ms: int, features: Features
) -> Sequence[Grid]:
    corrections = _corrections(rules)
    shown = [corrections] if corrections.rows else []
    return [_groups(groups, now_ms), _alerts(rules, features), *shown, _rules(rules, features)]


def words(groups: Sequence[Mapping[str, Any]], rules: Sequence[_GroupRule], now_ms: int) -> Sequence[Cell]:
    """The state of all rules as sentences."""
    failing = sum(one.state == "err" for one in rules)
    firing, pending = (
        sum(alert["state"] == state for one in rules for alert in one.rule.get("alerts", ()))
        for state in ("firing", "pending")
    )
    late = [one for one in groups if _is_late(one, now_ms)]
    counts = f"{_count(len(groups), 'group')} with {_count(len(rules), 'rule')}"
    found = [Cell(f"{counts}; alerts: {number(firing)} firing, {number(pending)} pending.")]
    if failing:
        found.append(Cell(f"{_count(failing, 'rule')} failed at the last evaluation and kept its state.", is_bad=True))
    if late:
        worst = max(late, key=lambda one: _lag_ms(one, now_ms) or 0)
        found.append(
            Cell(
                f"{_count(len(late), 'group')} behind complete data, {visible(worst['name'], 60)} the furthest. It "
                f"waits for: {visible(worst['waitsFor']) or 'its turn'}. No rule reads a part of the samples.",
                is_bad=True,
            )
        )
    return found


def _groups(groups: Sequence[Mapping[str, Any]], now_ms: int) -> Grid:
    ordered = sorted(groups, key=lambda one: -(_lag_ms(one, now_ms) or 0) if _is_late(one, now_ms) else 1)
    rows = [_group_row(one, now_ms) for one in ordered[:ROWS_MAX]]
    return Grid(_caption("Groups", len(ordered)), _GROUP_COLUMNS, rows, "No group has this name now.")


def _group_row(group: Mapping[str, Any], now_ms: int) -> Sequence[Cell]:
    lag_ms = _lag_ms(group, now_ms)
    return (
        Cell(visible(group["name"]), link=f"/ui/rules?{urlencode({'group': _key(group)})}", is_name=True),
        Cell(visible(group["file"]), is_name=True),
        Cell(number(len(group["rules"]))),
        Cell(duration(1000 * group["interval"])),
        Cell(time(_ms(group["evaluatedThrough"]))),
        Cell(time(_ms(group["nextEvaluation"]))),
        Cell("–" if lag_ms is None else duration(lag_ms) if lag_ms else "none", is_bad=_is_late(group, now_ms)),
        Cell(_seconds(group)),
        Cell(number(sum(rule["samples"] for rule in group["rules"]))),
        Cell(number(group.get("repairing", 0))),
        Cell(visible(group["waitsFor"]) or "–"),
    )


def _alerts(rules: Sequence[_GroupRule], features: Features) -> Grid:
    found = [(one, alert) for one in rules for alert in one.rule.get("alerts", ())]
    found.sort(key=lambda pair: (_URGENCY[pair[1]["state"]], pair[1]["activeAt"]))
    rows = [_alert_row(one, alert, features) for one, alert in found[:ROWS_MAX]]
    return Grid(_caption("Alerts", len(found)), _ALERT_COLUMNS, rows, "No alert is pending or firing.")


def _alert_row(one: _GroupRule, alert: Mapping[str, Any], features: Features) -> Sequence[Cell]:
    texts = "; ".join(f"{name}: {text}" for name, text in alert["annotations"].items())
    return (
        Cell(visible(one.rule["name"]), visible(texts), link=graph_link(one.rule, features), is_name=True),
        Cell(alert["state"], is_bad=alert["state"] == "firing"),
        Cell(time(_ms(alert["activeAt"]))),
        Cell(f"{float(alert['value']):.4g}", alert["value"]),
        _labels(alert["labels"]),
    )


def _labels(labels: Mapping[str, str]) -> Cell:
    """The labels of an alert; its name stands beside them."""
    text = ", ".join(f"{name}={quoted(value)}" for name, value in labels.items() if name != "alertname")
    return Cell(visible(text) or "–", is_name=True)


def _corrections(rules: Sequence[_GroupRule]) -> Grid:
    found = [note for one in rules for note in one.rule.get("corrections", ())]
    found.sort(key=lambda note: note["correctedAt"], reverse=True)
    rows = [_correction_row(note) for note in found[:ROWS_MAX]]
    return Grid(_caption("Corrected alerts", len(found)), _CORRECTION_COLUMNS, rows, "")


def _correction_row(note: Mapping[str, Any]) -> Sequence[Cell]:
    return (
        Cell(visible(note["labels"].get("alertname", "")), is_name=True),
        _labels(note["labels"]),
        *(Cell(time(_ms(note[name]))) for name in ("from", "through")),
        Cell(note["was"]),
        Cell(note["now"]),
        Cell(time(_ms(note["correctedAt"]))),
    )


def _rules(rules: Sequence[_GroupRule], features: Features) -> Grid:
    ordered = sorted(rules, key=lambda one: _URGENCY.get(one.state, len(_URGENCY)))
    rows = [_rule_row(one, features) for one in ordered[:ROWS_MAX]]
    return Grid(_caption("Rules", len(ordered)), _RULE_COLUMNS, rows, "The group has no rules.")


def _rule_row(one: _GroupRule, features: Features) -> Sequence[Cell]:
    rule = one.rule
    return (
        Cell(visible(rule["name"]), link=graph_link(rule, features), is_name=True),
        Cell(visible(one.group["name"]), is_name=True),
        Cell({"err": "failed", "unknown": "not yet"}.get(one.state, one.state), is_bad=one.state == "err"),
        Cell(visible(rule["query"]), is_name=True),
        Cell(time(_ms(rule["lastEvaluation"]))),
        Cell(_seconds(rule)),
        Cell(number(rule["samples"])),
        Cell(visible(rule.get("lastError", "")) or "–", is_bad=bool(rule.get("lastError"))),
    )


def graph_link(rule: Mapping[str, Any], features: Features) -> str:
    """The explorer with the series of a recording rule above its expression, or with the condition of an alert and the
    times at which it fired."""
    if rule["type"] == "alerting":
        query, title = _measured(rule["query"], features), f"{rule['name']}: {rule['query']}"
        panel = {"p0.q": query, "p0.title": title[:TITLE_CHARS_MAX], "p0.alerts": rule["name"][:TITLE_CHARS_MAX]}
    else:
        labels = {METRIC_NAME: rule["name"], **rule["labels"]}
        recorded = ",".join(f"{quoted(name)}={quoted(text)}" for name, text in labels.items())
        panel = {"p0.q": f"{{{recorded}}}", "p0.title": rule["name"][:TITLE_CHARS_MAX], "p1.q": rule["query"]}
    return f"/?{urlencode({'v': VERSION, 'range': _GRAPHED, **panel})}"


def _measured(query: str, features: Features) -> str:
    """The left side of a condition that compares with a number, so that its graph shows what is not reached too;
    another condition as it is."""
    if len(query) > QUERY_CHARS_MAX:
        return ""
    try:
        node: Expression = parse(query, features)
    except QueryError:
        return query
    while isinstance(node, Paren):
        node = node.inner
    if not (isinstance(node, Binary) and node.operator in _COMPARISONS and not node.returns_bool):
        return query
    right = node.right.operand if isinstance(node.right, Unary) else node.right
    return shown(node.left) if isinstance(right, NumberLiteral) else query


def _key(group: Mapping[str, Any]) -> str:
    return f"{group['file']};{group['name']}"


def _ms(text: str) -> int | None:
    found = parse_time(text)
    return None if found < 0 else found  # The API has the year 1 for an evaluation that never was.


def _lag_ms(group: Mapping[str, Any], now_ms: int) -> int | None:
    """Time since the samples of the next evaluation should be readable; None before that one is known."""
    due_ms = _ms(group["dueAt"])
    return None if due_ms is None else max(0, now_ms - due_ms)


def _is_late(group: Mapping[str, Any], now_ms: int) -> bool:
    interval_ms: int = round(1000 * group["interval"])
    return (_lag_ms(group, now_ms) or 0) > max(interval_ms, _LATE_MS)


def _seconds(one: Mapping[str, Any]) -> str:
    seconds = one["evaluationTime"]
    return duration(1000 * seconds) if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _count(count: int, noun: str) -> str:
    return f"{number(count)} {noun}{'' if count == 1 else 's'}"


def _caption(title: str, count: int) -> str:
    return title if count <= ROWS_MAX else f"{title}; the first {ROWS_MAX} of {count:,} are shown"
