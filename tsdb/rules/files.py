"""Rule files of Prometheus: groups of recording and alerting rules. A file with a problem is refused as a whole.

A problem names file, line, column, group and rule, with the words of `promtool check rules` where it has some.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tsdb.promql.syntax.check import type_of
from tsdb.promql.syntax.features import Features
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.tree import Expression, ValueType
from tsdb.rules.document import Place, Reading, YamlFields, YamlItems, YamlNode, parse_document
from tsdb.rules.templates.syntax import TemplateError
from tsdb.rules.templates.template import Template
from tsdb.selector.selectors import METRIC_NAME
from tsdb.selector.tokens import QueryError

ALERT_NAME = "alertname"
INTERVAL_MS = 60_000  # A group without an interval has this one, as in Prometheus.
NO_FEATURES = Features()

_GROUP_FIELDS = ("name", "interval", "query_offset", "limit", "rules", "labels")
_RULE_FIELDS = ("record", "alert", "expr", "for", "keep_firing_for", "labels", "annotations")


@dataclass(frozen=True, slots=True)
class RuleQuery:
    """The expression of a rule: an instant vector or a scalar. text: as in the file."""

    text: str
    node: Expression


@dataclass(frozen=True, slots=True)
class RecordingRule:
    """name: metric of the recorded series. labels: those of its group included; an empty value removes a label."""

    name: str
    query: RuleQuery
    labels: Mapping[str, str]
    place: Place


@dataclass(frozen=True, slots=True)
class AlertingRule:
    """for_ms: how long the condition holds before the alert fires. keep_firing_for_ms: how long it fires on after the
    condition has ended. labels, annotations: templates, the labels of the group included."""

    name: str
    query: RuleQuery
    for_ms: int
    keep_firing_for_ms: int
    labels: Mapping[str, Template]
    annotations: Mapping[str, Template]
    place: Place


Rule = RecordingRule | AlertingRule


@dataclass(frozen=True, slots=True)
class RuleGroup:
    """Rules that are evaluated in order, at each multiple of the interval.

    query_offset_ms: the rules read, and their results have, a time that is earlier by it. None: the default of the
    process. limit: series or alerts of a rule, 0 for any number.
    """

    file: str
    name: str
    interval_ms: int
    query_offset_ms: int | None
    limit: int
    rules: tuple[Rule, ...]
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """File and name; no two groups share them."""
        return f"{self.file};{self.name}"


@dataclass(frozen=True, slots=True)
class RuleFile:
    """digest: SHA-256 of the bytes."""

    file: str
    groups: tuple[RuleGroup, ...]
    digest: str

    @property
    def rules(self) -> int:
        """Number of rules in all groups."""
        return sum(len(group.rules) for group in self.groups)


def load_rules(path: Path, *, interval_ms: int = INTERVAL_MS, features: Features = NO_FEATURES) -> RuleFile:
    """The groups of a file. Raises DocumentError and OSError."""
    return parse_rules(path.read_bytes(), str(path), interval_ms=interval_ms, features=features)


def parse_rules(
    data: bytes, file: str, *, interval_ms: int = INTERVAL_MS, features: Features = NO_FEATURES
) -> RuleFile:
    """The groups of a file's bytes. interval_ms: default for groups without one. Raises DocumentError."""
    reader = _Reader(file, interval_ms, features)
    groups = reader.groups(parse_document(data, file))
    reader.reading.finish()
    return RuleFile(file, groups, hashlib.sha256(data).hexdigest())


class _Reader:
    def __init__(self, file: str, interval_ms: int, features: Features) -> None:
        self.reading = Reading(file)
        self._file = file
        self._interval_ms = interval_ms
        self._features = features

    def groups(self, root: YamlNode) -> tuple[RuleGroup, ...]:
        fields = self.reading.fields(root, "a rule file", ("groups",))
        found: list[RuleGroup] = []
        names: set[str] = set()
        for node in self.reading.items(fields.get("groups"), "groups"):
            group = self._group(node)
            if group.name in names:
                self.reading.problem(node.place, f'groupname: "{group.name}" is repeated in the same file')
            names.add(group.name)
            found.append(group)
        return tuple(found)

    def _group(self, node: YamlNode) -> RuleGroup:
        reading = self.reading
        fields = reading.fields(node, "a group", _GROUP_FIELDS)
        name = reading.text(fields.get("name"), "name")
        if not name:
            reading.problem(node.place, "Groupname must not be empty")
        interval_ms = reading.duration_ms(fields.get("interval"), "interval")
        limit = reading.integer(fields.get("limit"), "limit")
        if limit < 0:
            reading.problem(fields["limit"].place, f"limit {limit} is negative; 0 means no limit")
        labels = reading.texts(fields.get("labels"), "labels")
        for label in labels:
            if not _is_label(label):
                reading.problem(_place(fields["labels"], label), f'group "{name}": invalid label name: {label}')
        rules = [
            self._rule(rule, f'group "{name}", rule {number}', labels)
            for number, rule in enumerate(reading.items(fields.get("rules"), "rules"), 1)
        ]
        return RuleGroup(
            self._file,
            name,
            interval_ms or self._interval_ms,  # 0 counts as no interval, as in Prometheus.
            reading.duration_ms(fields.get("query_offset"), "query_offset"),
            limit,
            tuple(rule for rule in rules if rule is not None),
            labels,
        )

    def _rule(self, node: YamlNode, where: str, group_labels: Mapping[str, str]) -> Rule | None:
        reading = self.reading
        before = len(reading.problems)
        fields = reading.fields(node, "a rule", _RULE_FIELDS)
        if not isinstance(node, YamlFields):
            return None
        record, alert = (reading.text(fields.get(name), name) for name in ("record", "alert"))
        where = f'{where}, "{record or alert}"'
        if record and alert:
            reading.problem(fields["alert"].place, f"{where}: only one of 'record' and 'alert' must be set")
        if not record and not alert and len(reading.problems) == before:
            reading.problem(node.place, f"{where}: one of 'record' or 'alert' must be set")
        query = self._query(fields.get("expr"), node.place, where)
        labels = {**group_labels, **reading.texts(fields.get("labels"), "labels")}
        for label in labels:
            if not _is_label(label) and label not in group_labels:
                reading.problem(_place(fields["labels"], label), f"{where}: invalid label name: {label}")
        found: Rule | None
        if record:
            self._check_record(record, fields, where)
            found = None if query is None else RecordingRule(record, query, labels, node.place)
        else:
            found = self._alert(alert, query, labels, fields, node.place, where)
        return found if len(reading.problems) == before else None

    def _query(self, node: YamlNode | None, place: Place, where: str) -> RuleQuery | None:
        text = self.reading.text(node, "expr")
        if not text:
            self.reading.problem(place, f"{where}: field 'expr' must be set in rule")
            return None
        assert node is not None
        try:
            query = RuleQuery(text, parse(text, self._features))
        except QueryError as error:
            self.reading.problem(node.place, f"{where}: could not parse expression: {error.message}")
            return None
        kind = type_of(query.node)
        if kind not in (ValueType.VECTOR, ValueType.SCALAR):
            problem = f"the expression is a {kind.value}, must be an instant vector or a scalar"
            self.reading.problem(node.place, f"{where}: {problem}")
            return None
        return query

    def _check_record(self, name: str, fields: Mapping[str, YamlNode], where: str) -> None:
        for unfit in ("annotations", "for", "keep_firing_for"):
            if unfit in fields and fields[unfit] and not _is_empty(fields[unfit]):
                self.reading.problem(fields[unfit].place, f"{where}: invalid field '{unfit}' in recording rule")
        if "{" in name or "}" in name:
            problem = f"braces present in the recording rule name; should it be in expr?: {name}"
            self.reading.problem(fields["record"].place, f"{where}: {problem}")
        elif not _is_text(name):
            self.reading.problem(fields["record"].place, f"{where}: invalid recording rule name: {name!r}")

    def _alert(
        self,
        name: str,
        query: RuleQuery | None,
        labels: Mapping[str, str],
        fields: Mapping[str, YamlNode],
        place: Place,
        where: str,
    ) -> AlertingRule | None:
        reading = self.reading
        for_ms = reading.duration_ms(fields.get("for"), f"{where}: for") or 0
        keep_ms = reading.duration_ms(fields.get("keep_firing_for"), f"{where}: keep_firing_for") or 0
        annotations = reading.texts(fields.get("annotations"), "annotations")
        for annotation in annotations:
            if not _is_label(annotation):
                at = _place(fields["annotations"], annotation)
                reading.problem(at, f"{where}: invalid annotation name: {annotation}")
        label_templates = self._templates(name, "label", labels, fields.get("labels"), where)
        templates = self._templates(name, "annotation", annotations, fields.get("annotations"), where)
        if query is None:
            return None
        return AlertingRule(name, query, for_ms, keep_ms, label_templates, templates, place)

    def _templates(
        self, alert: str, what: str, texts: Mapping[str, str], node: YamlNode | None, where: str
    ) -> dict[str, Template]:
        found: dict[str, Template] = {}
        for name, text in texts.items():
            try:
                found[name] = Template(text, f"__alert_{alert}")
            except TemplateError as error:
                place = _place(node, name) if node is not None else None
                self.reading.problem(place, f'{where}: {what} "{name}": {error.message}')
        return found


def _is_label(name: str) -> bool:
    return bool(name) and name != METRIC_NAME and _is_text(name)


def _is_text(text: str) -> bool:
    return not any(0xD800 <= ord(char) <= 0xDFFF for char in text)


def _is_empty(node: YamlNode) -> bool:
    if isinstance(node, YamlFields):
        return not node.fields
    return not (node.items if isinstance(node, YamlItems) else node.text)


def _place(node: YamlNode | None, name: str) -> Place | None:
    """Place of a key of a mapping; of the mapping where the key comes from elsewhere."""
    if isinstance(node, YamlFields):
        return node.places.get(name, node.place)
    return None if node is None else node.place


def duplicates(files: Sequence[RuleFile]) -> list[tuple[str, Mapping[str, str], int]]:
    """Names and labels that several rules write, with the number of rules: their samples replace one another."""
    counts: Counter[tuple[str, tuple[tuple[str, str], ...]]] = Counter()
    for file in files:
        for group in file.groups:
            counts.update((rule.name, _label_texts(rule)) for rule in group.rules)
    return [(name, dict(labels), count) for (name, labels), count in counts.items() if count > 1]


def _label_texts(rule: Rule) -> tuple[tuple[str, str], ...]:
    return tuple(
        sorted((name, value.text if isinstance(value, Template) else value) for name, value in rule.labels.items())
    )
