"""Answers `/api/v1/rules` and `/api/v1/alerts`: the groups of the ruler of this process; without one they are empty."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from tsdb.api.prometheus import parameters
from tsdb.api.prometheus.answer import Result, plain
from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter

_TYPES = {"": ("alerting", "recording"), "alert": ("alerting",), "record": ("recording",)}
_FLAGS = {"": False, "true": True, "false": False, "1": True, "0": False}


def rules(call: ApiCall) -> Result:
    """Parameters: type, rule_name[], rule_group[], file[], exclude_alerts."""
    kind = call.form.get("type").lower()
    if kind not in _TYPES:
        raise BadParameter("type", f"not supported value {parameters.quoted(kind)}")
    excludes = call.form.get("exclude_alerts").lower()
    if excludes not in _FLAGS:
        raise BadParameter("exclude_alerts", f"not supported value {parameters.quoted(excludes)}")
    files, groups, names = (call.form.all(f"{name}[]") for name in ("file", "rule_group", "rule_name"))
    found = []
    for group in call.sources.rule_groups():
        if _passes(group["file"], files) and _passes(group["name"], groups):
            chosen = [rule for rule in group["rules"] if rule["type"] in _TYPES[kind] and _passes(rule["name"], names)]
            if chosen or not (names or kind):
                shown = [_without_alerts(rule) for rule in chosen] if _FLAGS[excludes] else chosen
                found.append({**group, "rules": shown})
    return plain({"groups": found})


def alerts(call: ApiCall) -> Result:
    """All pending and firing alerts."""
    rules = (rule for group in call.sources.rule_groups() for rule in group["rules"])
    return plain({"alerts": [alert for rule in rules for alert in rule.get("alerts", ())]})


def _passes(text: str, wanted: Collection[str]) -> bool:
    return not wanted or text in wanted


def _without_alerts(rule: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in rule.items() if name != "alerts"}
