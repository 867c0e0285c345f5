"""Evaluates a group of rules at one time. Pure but for its two functions: one asks PromQL, one receives the samples.

A later rule sees the samples of the earlier ones. A rule that fails keeps its state and does not stop the others. A
series that a rule wrote the last time and not this time gets a stale marker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.model.histograms import HistogramColumns
from tsdb.model.stale import STALE
from tsdb.rules.alerts import Alert, AlertState, FoundAlert, Labels, active, alert_labels, alert_series, next_alerts
from tsdb.rules.files import AlertingRule, RecordingRule, Rule, RuleGroup
from tsdb.rules.templates.functions import TemplateContext, TemplateSample
from tsdb.rules.templates.printing import TemplateHistogram
from tsdb.rules.templates.template import TemplateData
from tsdb.rules.values import RuleValue, float_of, recorded_value
from tsdb.selector.selectors import METRIC_NAME

TOO_LARGE = ("read_timeout", "answer_too_large")  # Reasons of Overloaded that concern the read alone.
TEMPLATE_SERIES_MAX = 10_000  # Series that a query of a template may give.
SAME_LABELS = "vector contains metrics with the same labelset after applying"


class RuleError(TsdbError):
    """A rule has no result at a time: its state stays, and the other rules go on."""

    default_reason = "rule_failed"


@dataclass(frozen=True, slots=True)
class VectorSample:
    """A series of a rule's expression at the time of the evaluation."""

    labels: Mapping[str, str]
    value: RuleValue


@dataclass(frozen=True, slots=True)
class RuleSample:
    """A sample to write. labels: with the name of the metric."""

    labels: Labels
    ts_ms: int
    value: RuleValue


@dataclass(frozen=True, slots=True)
class RuleState:
    """The last evaluation, as far as the next one needs it. series: its results. alerts: pending, firing and resolved.

    error: text of its failure, or "". samples: number of its results, without stale markers.
    """

    series: frozenset[Labels] = frozenset()
    alerts: Mapping[Labels, Alert] = field(default_factory=dict)
    error: str = ""
    samples: int = 0
    evaluated_at_ms: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RuleGroupState:
    """rules: the state of each rule. leftover: series of rules that are gone; they get a stale marker next."""

    rules: tuple[RuleState, ...]
    leftover: frozenset[Labels] = frozenset()


@dataclass(frozen=True, slots=True)
class RuleSurroundings:
    """query: the vector of an expression at a time; raises TsdbError. write: receives the samples of each rule, which
    later queries see. external_labels, external_url: for templates. seconds: a clock for the cost of rules."""

    query: Callable[[str, int], Sequence[VectorSample]]
    write: Callable[[Sequence[RuleSample]], None]
    external_labels: Mapping[str, str] = field(default_factory=dict)
    external_url: str = ""
    seconds: Callable[[], float] = lambda: 0.0


def new_state(group: RuleGroup) -> RuleGroupState:
    """The state of a group that was never evaluated."""
    return RuleGroupState(tuple(RuleState() for _ in group.rules))


def carried_state(group: RuleGroup, before_group: RuleGroup, before: RuleGroupState) -> RuleGroupState:
    """The state of a group whose file has changed: equal rules keep theirs, in order; the others leave their series."""
    left = [(rule_identity(rule), state) for rule, state in zip(before_group.rules, before.rules, strict=True)]
    states: list[RuleState] = []
    for rule in group.rules:
        place = next((place for place, (key, _) in enumerate(left) if key == rule_identity(rule)), None)
        states.append(RuleState() if place is None else left.pop(place)[1])
    leftover = before.leftover.union(*(state.series for _, state in left))
    return RuleGroupState(tuple(states), leftover)


def rule_identity(rule: Rule) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    labels = ((name, value if isinstance(value, str) else value.text) for name, value in rule.labels.items())
    return type(rule).__name__, rule.name, tuple(sorted(labels))


def evaluate_group(
    group: RuleGroup, state: RuleGroupState, at_ms: int, offset_ms: int, surroundings: RuleSurroundings
) -> RuleGroupState:
    """Evaluate all rules at at_ms - offset_ms, which is also the time of their samples. Returns the next state.

    Raises Unavailable and Overloaded: then nothing has changed, and the same evaluation is to be repeated later.
    """
    ts_ms = at_ms - offset_ms
    states: list[RuleState] = []
    for rule, before in zip(group.rules, state.rules, strict=True):
        begin = surroundings.seconds()
        try:
            after, series = evaluate_rule(rule, group.limit, before, at_ms, ts_ms, surroundings)
        except TsdbError as error:
            if comes_later(error):
                raise
            after = replace(before, error=error.message, evaluated_at_ms=at_ms)
            if isinstance(error, _LimitExceeded) and isinstance(rule, AlertingRule):
                after = replace(after, alerts={})
        else:
            gone = before.series - series.keys()
            samples = [RuleSample(labels, ts_ms, value) for labels, value in series.items()]
            surroundings.write([*samples, *(RuleSample(labels, ts_ms, STALE) for labels in sorted(gone))])
        states.append(replace(after, seconds=surroundings.seconds() - begin))
    written = frozenset().union(*(one.series for one in states))
    leftover = sorted(state.leftover - written)
    if leftover:
        surroundings.write([RuleSample(labels, ts_ms, STALE) for labels in leftover])
    return RuleGroupState(tuple(states))


def comes_later(error: TsdbError) -> bool:
    """Whether the same read may succeed later; a read over its own bounds fails every time."""
    return isinstance(error, Unavailable) or (isinstance(error, Overloaded) and error.reason not in TOO_LARGE)


class _LimitExceeded(RuleError):
    pass


def evaluate_rule(
    rule: Rule, limit: int, before: RuleState, at_ms: int, ts_ms: int, surroundings: RuleSurroundings
) -> tuple[RuleState, Mapping[Labels, RuleValue]]:
    """The next state of a rule, and its series with their values. Raises TsdbError."""
    vector = surroundings.query(rule.query.text, ts_ms)
    alerts: Mapping[Labels, Alert] = {}
    series: Mapping[Labels, RuleValue]
    if isinstance(rule, RecordingRule):
        series = recorded(rule, vector)
        if limit and len(series) > limit:
            raise _LimitExceeded(f"exceeded limit of {limit} with {len(series)} series")
    else:
        alerts = next_alerts(rule, before.alerts, _conditions(rule, vector, ts_ms, surroundings), at_ms)
        count = len(active(alerts))
        if limit and count > limit:
            raise _LimitExceeded(f"exceeded limit of {limit} with {count} alerts")
        series = dict(alert_series(alerts))
    after = RuleState(frozenset(series), alerts, samples=len(series), evaluated_at_ms=at_ms)
    return after, series


def recorded(rule: RecordingRule, vector: Sequence[VectorSample]) -> dict[Labels, RuleValue]:
    """The series that a rule records from the vector of its expression. Raises RuleError."""
    own = {METRIC_NAME: rule.name, **rule.labels}
    series: dict[Labels, RuleValue] = {}
    for sample in vector:
        labels = tuple(sorted((name, value) for name, value in {**sample.labels, **own}.items() if value))
        if labels in series:
            raise RuleError(f"{SAME_LABELS} rule labels")
        series[labels] = recorded_value(sample.value)
    return series


def conditions(rule: AlertingRule, ts_ms: int, surroundings: RuleSurroundings) -> dict[Labels, FoundAlert]:
    """The conditions of a rule that hold at a time, by the labels of their alerts. Raises TsdbError."""
    return _conditions(rule, surroundings.query(rule.query.text, ts_ms), ts_ms, surroundings)


def _conditions(
    rule: AlertingRule, vector: Sequence[VectorSample], ts_ms: int, surroundings: RuleSurroundings
) -> dict[Labels, FoundAlert]:
    url = surroundings.external_url
    context = TemplateContext(lambda text: _template_samples(text, ts_ms, surroundings), ts_ms / 1000, url)
    found: dict[Labels, FoundAlert] = {}
    for sample in vector:
        data = TemplateData(sample.labels, _template_value(sample.value), surroundings.external_labels, url)
        own = {name: template.expand_or_error(data, context)[0] for name, template in rule.labels.items()}
        labels = alert_labels(rule, sample.labels, own)
        if labels in found:
            raise RuleError(f"{SAME_LABELS} alert labels")
        annotations = {name: template.expand_or_error(data, context)[0] for name, template in rule.annotations.items()}
        found[labels] = FoundAlert(labels, annotations, float_of(sample.value))
    return found


def _template_samples(text: str, ts_ms: int, surroundings: RuleSurroundings) -> list[TemplateSample]:
    vector = surroundings.query(text, ts_ms)
    if len(vector) > TEMPLATE_SERIES_MAX:
        raise RuleError(f"{len(vector)} series in a template; the limit is {TEMPLATE_SERIES_MAX}: aggregate them")
    return [TemplateSample(sample.labels, _template_value(sample.value)) for sample in vector]


def _template_value(value: RuleValue) -> float | TemplateHistogram:
    return TemplateHistogram(value) if isinstance(value, HistogramColumns) else value


def rule_state(state: RuleState) -> AlertState:
    """The state of an alerting rule: that of its most urgent alert."""
    states = {alert.state for alert in state.alerts.values()}
    for one in (AlertState.FIRING, AlertState.PENDING):
        if one in states:
            return one
    return AlertState.INACTIVE
