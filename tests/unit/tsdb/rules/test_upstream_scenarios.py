"""The scenarios of upstream's tests of rules (`rules/*_test.go` of Prometheus 3.15), each written anew.

| scenario upstream | test here |
|---|---|
| AlertingRule, ForStateAddSamples | test_groups: alerts are written with their state |
| AlertingRuleState, RuleHealthUpdates | here: health and state |
| AlertingRuleTemplateWithHistogram | unit_tests/test_histogram_cases: an alert of a histogram |
| AlertingRuleLabelsUpdate | here: a label with a value |
| AlertingRuleExternalLabelsInTemplate, ...URLInTemplate | unit_tests/test_unit_tests: external labels |
| AlertingRuleEmptyLabelFromTemplate | here: empty labels |
| AlertingRuleQueryInTemplate | test_groups: templates ask at the time |
| AlertingRuleDuplicate, AlertingRuleLimit | test_groups: a rule that fails; a limit of alerts |
| QueryForStateSeries, ForStateRestore, NewRuleGroupRestoration | test_ruler: a restart at any time |
| QueryForStateSeriesTemplateLabels | here: a restart with labels of templates |
| KeepFiringFor, PendingAndKeepFiringFor | test_alerts: states follow the condition |
| FiringAlertResetToPendingOnHoldDurationIncrease | here: a longer `for` |
| SendAlertsDontAffectActiveAlerts, Notify | test_notifier |
| Staleness, DeletedRuleMarkedStale, CopyState | test_groups: stale markers; a changed file |
| GroupStalenessOnRemoval, MetricsStalenessOnManagerShutdown | test_ruler: a group that is gone; here: a stop |
| RuleMovedBetweenGroups | here: a rule that moves |
| Group_QueryOffset | test_groups: query and samples are earlier |
| Update, Group_Equals | test_ruler: files that stay equal |
| NativeHistogramsInRecordingRules | test_groups: a histogram is recorded whole |
| DependencyMap and the tests of dependencies | test_schedule, test_backfill: groups that share nothing |
| LoadGroups, ParseFiles, Labels_FromMaps | test_files |
| RuleEval, RuleEvalDuplicate, RecordingRuleLimit | test_groups |

Without a counterpart: rules that run at once, contexts with the origin of a query, functions of Go's API that a caller
may replace, counters by group, stopping one manager twice.
"""

from __future__ import annotations

from support.rules.ruler_process import ALERT, RECORD, RulerProcess, alert
from support.rules.stepper import STALE, Stepper, labels
from tsdb.model.errors import HoleInRange
from tsdb.rules.alerts import AlertState
from tsdb.rules.groups import rule_state


def test_a_label_with_a_value_begins_the_alert_anew() -> None:
    label = "'{{ if lt $value 80.0 }}low{{ else }}high{{ end }}'"
    stepper = Stepper(f"rules: [{{alert: A, expr: x < 100, for: 1m, labels: {{s: {label}}}}}]", "x 75 85 70 70 stale")
    low = labels(name="ALERTS", alertname="A", alertstate="pending", s="low")
    high = labels(name="ALERTS", alertname="A", alertstate="pending", s="high")
    firing = labels(name="ALERTS", alertname="A", alertstate="firing", s="low")
    for number, expected in enumerate(
        ({low: 1.0}, {high: 1.0, low: STALE}, {low: 1.0, high: STALE}, {firing: 1.0, low: STALE}, {firing: STALE})
    ):
        stepper.step(number)
        assert {key: value for key, value in stepper.values().items() if ("__name__", "ALERTS") in key} == expected


def test_a_label_whose_template_is_empty_is_left_out() -> None:
    stepper = Stepper("rules: [{alert: A, expr: x, labels: {empty: '{{ $labels.none }}', job: ''}}]", 'x{job="j"} 1')
    stepper.step(0)
    assert stepper.values() == {
        labels(name="ALERTS", alertname="A", alertstate="firing"): 1.0,
        labels(name="ALERTS_FOR_STATE", alertname="A"): 0.0,
    }


def test_health_and_state_follow_each_evaluation() -> None:
    stepper = Stepper("rules: [{alert: A, expr: x > 0, for: 1m}]", "x 1 1 1 0")
    assert stepper.state.rules[0].evaluated_at_ms is None
    found = []
    for number in range(4):
        stepper.fails = (lambda _: HoleInRange("a loss")) if number == 1 else (lambda _: None)
        (rule,) = stepper.step(number).rules
        found.append((rule_state(rule), rule.error))
    assert found == [
        (AlertState.PENDING, ""),
        (AlertState.PENDING, "a loss"),
        (AlertState.FIRING, ""),
        (AlertState.INACTIVE, ""),
    ]


def test_a_firing_alert_is_pending_again_when_its_for_becomes_longer() -> None:
    process = RulerProcess(f"groups: [{ALERT}]")
    process.settle()
    process.run(60, 10.0)
    assert alert(process) == (AlertState.FIRING, 10, None)
    process.change(f"groups: [{ALERT}]".replace("for: 30s", "for: 2m"))
    process.run(10, 10.0)
    assert alert(process) == (AlertState.PENDING, 10, None)
    assert process.values(name="ALERTS", alertname="A", alertstate="firing")[-1] == (70, None)
    process.run(60, 10.0)
    assert alert(process) == (AlertState.FIRING, 10, None)
    process.change(f"groups: [{ALERT}]")
    process.run(20, 1.0)
    assert alert(process) == (AlertState.FIRING, 10, 140)


def test_a_restart_keeps_alerts_with_labels_of_templates() -> None:
    text = ALERT.replace("for: 30s", "for: 30s, labels: {v: 'v{{ $value }}'}")
    process = RulerProcess(f"groups: [{text}]")
    process.settle()
    process.run(20, 10.0)
    assert alert(process) == (AlertState.PENDING, 10, None)
    process.new_ruler()
    process.run(20, 10.0)
    assert alert(process) == (AlertState.FIRING, 10, None)
    assert process.values(name="ALERTS_FOR_STATE", alertname="A", v="v10")[-1][1] is not None


def test_a_stop_of_the_ruler_ends_no_series() -> None:
    process = RulerProcess(RECORD)
    process.settle()
    process.run(20, 1.0)
    process.process.close()
    process.process.step()
    assert process.values(name="a") == [(10, 1.0), (20, 1.0)]


def test_a_rule_that_moves_to_another_group_ends_no_series() -> None:
    process = RulerProcess(RECORD)
    process.settle()
    process.run(20, 1.0)
    process.change(RECORD.replace("name: g", "name: other"))
    process.run(30, 1.0)
    assert process.values(name="a") == [(at, 1.0) for at in (10, 20, 30, 40, 50)]
