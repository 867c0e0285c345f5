"""Unit tests of rules have the outcomes of promtool, and files with a problem are refused whole."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.senders.prometheus import binary
from tsdb.promql.evaluate.query import DEFAULTS
from tsdb.rules.document import DocumentError
from tsdb.rules.unit_tests.file import load_unit_tests
from tsdb.rules.unit_tests.run import run_unit_tests

RULES = """
groups:
- name: first
  rules:
  - {record: "job:x:sum", expr: sum by (job) (x)}
  - {alert: A, expr: x > 2, for: 2m, labels: {severity: page}, annotations: {s: "{{ $labels.job }} {{ $value }}"}}
- name: second
  rules:
  - {record: twice, expr: "2 * job:x:sum"}
  - {alert: B, expr: absent(x), keep_firing_for: 1m}
"""
SERIES = "  input_series:\n  - {series: 'x{job=\"a\"}', values: '1 2 3x5 stale _x3 4'}\n"
CASES = [
    # (expression or alert, time, expected, whether it holds)
    ("job:x:sum", "2m", "[{labels: 'job:x:sum{job=\"a\"}', value: 3}]", True),
    ("job:x:sum", "2m", "[{labels: 'job:x:sum{job=\"a\"}', value: 4}]", False),
    ("job:x:sum", "2m", "[]", False),
    ("twice", "1m", "[{labels: 'twice{job=\"a\"}', value: 4}]", True),
    ("sum(x", "1m", "[]", False),
    ("x", "8m", "[]", True),
    ("count_over_time(x[19m30s])", "20m", "[{labels: '{job=\"a\"}', value: 8}]", True),
    ("max by (job) (ALERTS_FOR_STATE{alertname='A'})", "5m30s", "[{labels: '{job=\"a\"}', value: 120}]", True),
    ("count(ALERTS{alertstate='firing'})", "5m", "[{labels: '{}', value: 1}]", True),
    ("vector(0.1 + 0.2)", "1m", "[{labels: '{}', value: 0.3}]", False),
    ("alert A", "5m", "[{exp_labels: {job: a, severity: page}, exp_annotations: {s: a 3}}]", True),
    ("alert A", "3m", "[]", True),
    ("alert A", "5m", "[]", False),
    ("alert A", "5m", "[{exp_labels: {job: a, severity: page}, exp_annotations: {s: a 4}}]", False),
    ("alert B", "8m", "[{}]", True),
    ("alert B", "12m59s", "[{}]", True),
    ("alert B", "13m", "[]", True),
    ("alert B", "11m59s", "[{}]", True),
    ("alert none", "5m", "[]", True),
]  # fmt: skip


def case(text: str, at: str, expected: str) -> str:
    if text.startswith("alert "):
        alert = text.removeprefix("alert ")
        return f"  alert_rule_test: [{{eval_time: {at}, alertname: {alert}, exp_alerts: {expected}}}]\n"
    return f'  promql_expr_test: [{{expr: "{text}", eval_time: {at}, exp_samples: {expected}}}]\n'


def write(folder: Path, tests: str, rules: str = RULES) -> Path:
    (folder / "rules.yaml").write_text(rules)
    # Without an order promtool evaluates the groups in a random one, and `twice` needs the record of the first group.
    head = "rule_files: [rules.yaml]\nevaluation_interval: 1m\ngroup_eval_order: [first, second]\n"
    (folder / "tests.yaml").write_text(f"{head}tests:\n{tests}")
    return folder / "tests.yaml"


def failures(path: Path) -> list[str]:
    return [one.text for one in run_unit_tests(load_unit_tests(path), DEFAULTS)]


def promtool_accepts(path: Path) -> bool:
    command = [binary("promtool"), "test", "rules", path.name]
    return subprocess.run(command, cwd=path.parent, capture_output=True, timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(("text", "at", "expected", "holds"), CASES)
def test_cases_hold_or_fail_as_in_promtool(text: str, at: str, expected: str, holds: bool, tmp_path: Path) -> None:
    path = write(tmp_path, f"- interval: 1m\n{SERIES}{case(text, at, expected)}")
    found = failures(path)
    assert (found == []) == holds, found
    assert promtool_accepts(path) == holds


def test_a_failure_shows_case_time_and_both_sides(tmp_path: Path) -> None:
    path = write(
        tmp_path, f"- interval: 1m\n  name: n\n{SERIES}{case('twice', '90s', '[]')}{case('alert A', '5m', '[]')}"
    )
    alert, expression = run_unit_tests(load_unit_tests(path), DEFAULTS)
    assert (alert.test, str(alert.place)) == ("n", "10:21")
    assert alert.text.splitlines()[:2] == ["alertname: A, time: 5m,", "    exp: []"]
    assert expression.text == 'expr: "twice", time: 1m30s,\n    exp: nil\n    got: twice{job="a"} 4'


def test_an_error_of_a_rule_ends_its_test(tmp_path: Path) -> None:
    rules = "groups: [{name: g, rules: [{record: r, expr: 'x + on() x'}]}]"
    series = "  input_series: [{series: 'x{a=\"1\"}', values: '1'}, {series: 'x{a=\"2\"}', values: '1'}]\n"
    path = write(tmp_path, f"- interval: 1m\n{series}{case('r', '3m', '[]')}", rules)
    (found,) = failures(path)
    assert found.startswith("rule: r, time: 0s, err: ")
    assert not promtool_accepts(path)


def test_groups_are_evaluated_in_the_order_of_the_file_of_tests(tmp_path: Path) -> None:
    tests = f"- interval: 1m\n{SERIES}" + case("twice", "0m", "[{labels: 'twice{job=\"a\"}', value: 2}]")
    path = write(tmp_path, tests)
    for order, holds in (("[first, second]", True), ("[second, first]", False)):
        path.write_text(f"group_eval_order: {order}\nrule_files: [rules.yaml]\ntests:\n{tests}")
        assert (failures(path) == []) == holds
        assert promtool_accepts(path) == holds


def test_a_fuzzy_comparison_accepts_the_next_float(tmp_path: Path) -> None:
    path = write(tmp_path, "- interval: 1m\n" + case("vector(0.1 + 0.2)", "1m", "[{labels: '{}', value: 0.3}]"))
    assert len(failures(path)) == 1
    path.write_text("fuzzy_compare: true\n" + path.read_text())
    assert failures(path) == []


@pytest.mark.parametrize("start", ["1700000000", "2023-11-14T22:13:20Z"])
def test_a_test_may_start_at_any_time(start: str, tmp_path: Path) -> None:
    rules = "groups: [{name: g, rules: [{record: now, expr: time()}]}]"
    tests = f"- interval: 1m\n  start_timestamp: {start}\n" + case("now", "1m", "[{labels: now, value: 1700000060}]")
    assert failures(write(tmp_path, tests, rules)) == []


def test_external_labels_and_address_reach_templates(tmp_path: Path) -> None:
    rules = (
        "groups: [{name: g, rules: [{alert: A, expr: vector(1), "
        "annotations: {s: '{{ $externalLabels.zone }} {{ $externalURL }}'}}]}]"
    )
    cases = case("alert A", "1m", "[{exp_annotations: {s: 'z http://x'}}]")
    tests = f"- interval: 1m\n  external_labels: {{zone: z}}\n  external_url: 'http://x'\n{cases}"
    path = write(tmp_path, tests, rules)
    assert failures(path) == []
    assert promtool_accepts(path)


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        ("- {interval: 1m, bad: 1}", "5:18: field bad not found in a test"),
        ("- {alert_rule_test: [{eval_time: 1m}]}", "misses required attribute alertname"),
        ("- {input_series: [{series: 'x{', values: '1'}]}", "5:19: series: not a label"),
        ("- {input_series: [{series: x, values: 1 z}]}", "series: not a point"),
        ("- {input_series: [{series: x, values: 1x99999999999}]}", "the limit is 10000000 points of a series"),
        (
            "- {input_series: [{series: x, values: '{{counts:1}}'}]}",
            "5:19: series: unknown fields of a histogram: counts",
        ),
        ("- {input_series: [{series: x, values: '{{schema:9}}'}]}", "series: invalid histogram: schema 9"),
        ("- {input_series: [{series: x, values: '{{schema:1.5}}'}]}", "series: invalid literal for int()"),
        ("- {input_series: [{series: x, values: '{{offset:4000000000 buckets:[1]}}'}]}", "series: invalid histogram: "),
        (
            "- {input_series: [{series: x, values: '{{buckets:[1 2]}}x500000'}]}",
            "more than 1000000 buckets of histograms",
        ),
        (
            "- {input_series: [{series: x, values: '{{count:1}}+{{schema:-53 custom_values:[1]}}x2'}]}",
            "series: a histogram and its change have other custom_values",
        ),
        ("- {promql_expr_test: [{expr: x, exp_samples: [{labels: x, histogram: '1'}]}]}", "not one histogram: '1'"),
        ("- {promql_expr_test: [{expr: x, exp_samples: [{labels: 'x 1', value: 1}]}]}", "unexpected values behind"),
        ("- {promql_expr_test: [{expr: x, exp_samples: [{labels: x, value: a}]}]}", 'value: "a" is not a number'),
        ("- {promql_expr_test: [{expr: x, eval_time: 1000000w}]}", "eval_time: duration out of range"),
        ("- {promql_expr_test: [{expr: x, eval_time: 290y}]}", "more than 1000000 evaluations in a test"),
        ("- {start_timestamp: soon}", "start_timestamp: "),
    ],
)
def test_a_problem_of_a_file_of_tests_has_its_place(tests: str, expected: str, tmp_path: Path) -> None:
    with pytest.raises(DocumentError) as error:
        load_unit_tests(write(tmp_path, tests))
    (found,) = error.value.message.splitlines()
    assert expected in found


def test_a_bad_rule_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "- {}", "groups: [{}]")
    with pytest.raises(DocumentError, match=r"rules\.yaml: 1:10: Groupname must not be empty"):
        failures(path)


def test_a_pattern_without_a_file_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "- {}")
    path.write_text(path.read_text().replace("[rules.yaml]", "['*.yml', 'r*.yaml']"))
    found = load_unit_tests(path)
    assert (found.unmatched, [one.name for one in found.rule_files]) == (("*.yml",), ["rules.yaml"])
