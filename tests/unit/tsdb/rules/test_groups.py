"""A group of rules at one time: order, stale markers, limits, failures and what a change of its file keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from support.rules.stepper import STALE, STEP_MS, Stepper, group, labels
from tsdb.model.errors import HoleInRange, Overloaded, TsdbError, Unavailable
from tsdb.model.histograms import GAUGE, NOT_RESET, UNKNOWN, HistogramColumns
from tsdb.promql.evaluate.native.histograms import from_columns
from tsdb.rules.alerts import AlertState, Labels
from tsdb.rules.groups import (
    TEMPLATE_SERIES_MAX,
    carried_state,
    rule_state,
)
from tsdb.rules.unit_tests.histograms import HistogramValue, values_of
from tsdb.rules.unit_tests.notation import labels_of
from tsdb.selector.selectors import METRIC_NAME


def test_a_later_rule_sees_the_samples_of_an_earlier_one() -> None:
    stepper = Stepper(
        "rules: [{record: a, expr: sum(x)}, {record: b, expr: a * 2}, {record: c, expr: c offset 1m}]", "x 3 4"
    )
    stepper.step(0)
    assert stepper.values() == {labels(name="a"): 3.0, labels(name="b"): 6.0}
    stepper.step(1)
    assert stepper.values() == {labels(name="a"): 4.0, labels(name="b"): 8.0}


def test_labels_of_a_rule_replace_those_of_its_series_and_empty_ones_remove_them() -> None:
    text = "labels: {team: t}, rules: [{record: a, expr: x, labels: {job: new, instance: ''}}, {record: s, expr: 1}]"
    stepper = Stepper(text, 'x{job="j",instance="i",zone="z"} 1')
    stepper.step(0)
    assert stepper.values() == {
        labels(name="a", job="new", zone="z", team="t"): 1.0,
        labels(name="s", team="t"): 1.0,
    }


def test_a_histogram_is_recorded_whole_without_the_hint_of_its_series_and_ends_as_a_float() -> None:
    stepper = Stepper('rules: [{record: s, expr: "sum(h)"}, {record: g, expr: gauge}]')
    for number in range(3):
        counts = {-1: 1.0, number: 2.0 + number}
        value = HistogramValue(1, 4.0 + number, 1.5, 1.0, 0.001, (), counts, {2: 1.0}, NOT_RESET)
        stepper.storage.add(labels_of({"__name__": "h", "i": str(number)}), [(0, value.columns())])
        stepper.storage.add(labels_of({"__name__": "gauge"}), [(0, replace(value, hint=GAUGE).columns())])
    stepper.step(0)
    recorded, gauge = stepper.written
    assert isinstance(recorded.value, HistogramColumns)
    assert isinstance(gauge.value, HistogramColumns)
    (found,) = values_of(from_columns(recorded.value))
    assert found == HistogramValue(1, 15.0, 4.5, 3.0, 0.001, (), {-1: 3.0, 0: 2.0, 1: 3.0, 2: 4.0}, {2: 3.0}, UNKNOWN)
    assert gauge.value.hints.tolist() == [GAUGE]
    stepper.written.clear()
    stepper.step(6)
    assert [math.isnan(one.value) for one in stepper.written if isinstance(one.value, float)] == [True, True]


def test_series_that_are_gone_get_one_stale_marker() -> None:
    stepper = Stepper("rules: [{record: a, expr: x}]", 'x{i="1"} 1 1 1', 'x{i="2"} 1 stale')
    one, two = labels(name="a", i="1"), labels(name="a", i="2")
    for number, expected in enumerate(({one: 1.0, two: 1.0}, {one: 1.0, two: STALE}, {one: 1.0})):
        stepper.step(number)
        assert stepper.values() == expected


def test_alerts_are_written_with_their_state_and_end_with_stale_markers() -> None:
    stepper = Stepper("rules: [{alert: A, expr: x > 0, for: 1m, labels: {s: p}}]", "x 1 1 0 0")
    pending = labels(name="ALERTS", alertname="A", alertstate="pending", s="p")
    firing = labels(name="ALERTS", alertname="A", alertstate="firing", s="p")
    since = labels(name="ALERTS_FOR_STATE", alertname="A", s="p")
    expected: list[Mapping[Labels, float | None]] = [
        {pending: 1.0, since: 0.0},
        {firing: 1.0, since: 0.0, pending: STALE},
        {firing: STALE, since: STALE},
        {},
    ]
    states = [AlertState.PENDING, AlertState.FIRING, AlertState.INACTIVE, AlertState.INACTIVE]
    for number, (values, state) in enumerate(zip(expected, states, strict=True)):
        (rule,) = stepper.step(number).rules
        assert (stepper.values(), rule_state(rule)) == (values, state)


def test_query_and_samples_are_earlier_by_the_offset() -> None:
    stepper = Stepper("rules: [{record: a, expr: x}, {alert: A, expr: x}]", "x 1 2 3")
    stepper.step(2, offset_ms=STEP_MS)
    assert stepper.asked == [("x", STEP_MS)] * 2
    assert {one.ts_ms for one in stepper.written} == {STEP_MS}
    assert stepper.values()[labels(name="a")] == 2.0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("limit: 1, rules: [{record: a, expr: x}]", "exceeded limit of 1 with 2 series"),
        ("limit: 1, rules: [{alert: A, expr: x}]", "exceeded limit of 1 with 2 alerts"),
        ("rules: [{record: a, expr: x, labels: {i: ''}}]", "same labelset after applying rule labels"),
        ("rules: [{alert: a, expr: x, labels: {i: ''}}]", "same labelset after applying alert labels"),
        ("rules: [{record: a, expr: x + on() x}]", "found duplicate series for the match group"),
    ],
)
def test_a_rule_that_fails_says_why_and_the_others_go_on(text: str, error: str) -> None:
    stepper = Stepper(text.removesuffix("]") + ", {record: good, expr: 1}]", 'x{i="1"} 1', 'x{i="2"} 1')
    bad, good = stepper.step(0).rules
    assert error in bad.error
    assert not good.error
    assert stepper.values() == {labels(name="good"): 1.0}


def test_a_limit_of_alerts_resets_them_as_in_prometheus() -> None:
    stepper = Stepper("limit: 1, rules: [{alert: A, expr: x, for: 1m}]", 'x{i="1"} 1 1 1', 'x{i="2"} _ 1 stale')
    counts = [len(stepper.step(number).rules[0].alerts) for number in range(3)]
    assert counts == [1, 0, 1]
    (alert,) = stepper.state.rules[0].alerts.values()
    assert (alert.state, alert.active_at_ms) == (AlertState.PENDING, 2 * STEP_MS)


def test_a_failed_rule_keeps_its_series_and_marks_them_stale_later() -> None:
    stepper = Stepper("rules: [{record: a, expr: x}]", "x 1 1 stale")
    stepper.step(0)
    stepper.fails = lambda _: HoleInRange("a loss")
    (rule,) = stepper.step(1).rules
    assert (rule.error, stepper.values()) == ("a loss", {})
    stepper.fails = lambda _: None
    stepper.step(2)
    assert stepper.values() == {labels(name="a"): STALE}


@pytest.mark.parametrize("error", [Unavailable("behind"), Overloaded("busy")])
def test_an_answer_that_comes_later_changes_no_state(error: TsdbError) -> None:
    stepper = Stepper("rules: [{record: a, expr: x}, {alert: A, expr: y}]", "x 1 1", "y 1 1")
    before = stepper.step(0)
    stepper.fails = lambda text: error if text == "y" else None
    with pytest.raises(type(error)):
        stepper.step(1)
    assert stepper.state is before


def test_templates_ask_at_the_time_of_the_evaluation() -> None:
    annotation = "'{{ with query \"sum(y)\" }}{{ . | first | value }}{{ end }} of {{ $labels.i }}'"
    stepper = Stepper(f"rules: [{{alert: A, expr: x, annotations: {{s: {annotation}}}}}]", 'x{i="1"} 1 1', "y 5 6")
    stepper.step(0)
    (rule,) = stepper.step(1).rules
    (alert,) = rule.alerts.values()
    assert alert.annotations == {"s": "6 of 1"}


def test_a_query_of_a_template_gives_a_bounded_number_of_series() -> None:
    annotation = "'{{ query \"y\" | len }}'"
    stepper = Stepper(f"rules: [{{alert: A, expr: x, annotations: {{s: {annotation}}}}}]", "x 1")
    for number in range(TEMPLATE_SERIES_MAX + 1):
        stepper.storage.add(((METRIC_NAME, "y"), ("i", str(number))), [(0, 1.0)])
    (alert,) = stepper.step(0).rules[0].alerts.values()
    assert (
        f"{TEMPLATE_SERIES_MAX + 1} series in a template; the limit is {TEMPLATE_SERIES_MAX}" in alert.annotations["s"]
    )


def test_a_changed_file_keeps_the_state_of_equal_rules_and_ends_the_series_of_others() -> None:
    stepper = Stepper("rules: [{record: a, expr: x}, {record: b, expr: x}, {alert: A, expr: x, for: 5m}]", "x 1 1 1")
    stepper.step(0)
    changed = group("rules: [{alert: A, expr: x > 0, for: 5m}, {record: a, expr: x}, {record: new, expr: x}]")
    stepper.state, stepper.group = carried_state(changed, stepper.group, stepper.state), changed
    stepper.step(1)
    assert stepper.values()[labels(name="b")] is STALE
    (alert,) = stepper.state.rules[0].alerts.values()
    assert alert.active_at_ms == 0
    assert stepper.state.leftover == frozenset()
