"""Answers `/api/v1/rules`, `/api/v1/alerts` and `/api/v1/alertmanagers`: the groups of the ruler of this process, or of
all rulers that a querier asks, and where the ruler sends alerts. Without a ruler they are empty."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tsdb.api.prometheus import parameters
from tsdb.api.prometheus.answer import Result, plain
from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.parameters import Form
from tsdb.model.selector import Matcher
from tsdb.selector.selectors import matches

_TYPES = {"": ("alerting", "recording"), "alert": ("alerting",), "record": ("recording",)}
_FLAGS = {"": False, "true": True, "false": False, "1": True, "0": False}


def rules(call: ApiCall) -> Result:
    """Parameters: type, rule_name[], rule_group[], file[], match[], exclude_alerts, group_limit, group_next_token; own:
    groups of this process alone, which a querier that asks rulers refuses."""
    if call.form.get("own") and call.sources.asks_rulers:
        raise BadParameter("own", "this process evaluates no rules and asks rulers itself: `rulers` names rulers alone")
    kind = call.form.get("type").lower()
    if kind not in _TYPES:
        raise BadParameter("type", f"not supported value {parameters.quoted(kind)}")
    excludes = call.form.get("exclude_alerts").lower()
    if excludes not in _FLAGS:
        raise BadParameter("exclude_alerts", f"not supported value {parameters.quoted(excludes)}")
    matchers = parameters.selectors(call.form)
    limit, token = _group_limit(call.form), call.form.get("group_next_token")
    files, groups, names = (call.form.all(f"{name}[]") for name in ("file", "rule_group", "rule_name"))
    found, known = [], call.sources.rule_groups()
    for group in known.groups:
        if _passes(group["file"], files) and _passes(group["name"], groups):
            chosen = [
                rule
                for rule in group["rules"]
                if rule["type"] in _TYPES[kind] and _passes(rule["name"], names) and _matches(rule["labels"], matchers)
            ]
            if chosen or not (names or kind or matchers):
                shown = [_without_alerts(rule) for rule in chosen] if _FLAGS[excludes] else chosen
                found.append({**group, "rules": shown})
    page = _page(found, limit, token)
    if known.others is not None:
        # Beside Prometheus's fields, for the querier that joins the answers of all rulers.
        page["otherGroups"] = [{"file": file, "name": name} for file, name in known.others]
        page["alertmanagers"] = list(known.alertmanagers)
    return plain(page, known.warnings)


def alertmanagers(call: ApiCall) -> Result:
    """The Alertmanagers that get the alerts; none is dropped, because the list is fixed."""
    known = call.sources.rule_groups()
    urls = [{"url": url} for url in known.alertmanagers]
    return plain({"activeAlertmanagers": urls, "droppedAlertmanagers": []}, known.warnings)


def alerts(call: ApiCall) -> Result:
    """All pending and firing alerts."""
    known = call.sources.rule_groups()
    rules = (rule for group in known.groups for rule in group["rules"])
    return plain({"alerts": [alert for rule in rules for alert in rule.get("alerts", ())]}, known.warnings)


def _group_limit(form: Form) -> int:
    """Groups of one answer; 0: all."""
    text = form.get("group_limit")
    if not text:
        if form.get("group_next_token"):
            raise BadParameter("group_limit", "group_limit needs to be set in order to paginate over the groups")
        return 0
    try:
        limit = parameters.integer(text)
    except ValueError:
        limit = 0
    if limit <= 0:
        raise BadParameter("group_limit", f"group_limit needs to be a valid number: {parameters.quoted(text)}")
    return limit


def _page(groups: list[dict[str, Any]], limit: int, token: str) -> dict[str, Any]:
    """The groups from the one of the token on. Groups come by file and name, so a token outlives other groups."""
    keys = [hashlib.sha1(f"{group['file']};{group['name']}".encode()).hexdigest() for group in groups]
    start = 0
    if token:
        if token not in keys:
            raise BadParameter("group_next_token", "invalid group_next_token: were rule groups changed?")
        start = keys.index(token)
    end = start + limit if limit else len(groups)
    found: dict[str, Any] = {"groups": groups[start:end]}
    return {**found, "groupNextToken": keys[end]} if end < len(groups) else found


def _matches(labels: Mapping[str, str], selectors: Sequence[Sequence[Matcher]]) -> bool:
    """Whether any selector matches the labels of a rule. A template is no label yet."""
    values = {name: value for name, value in labels.items() if "{{" not in value}
    return not selectors or any(
        all(matches(one, values.get(one.name, "")) for one in selector) for selector in selectors
    )


def _passes(text: str, wanted: Collection[str]) -> bool:
    return not wanted or text in wanted


def _without_alerts(rule: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in rule.items() if name != "alerts"}
