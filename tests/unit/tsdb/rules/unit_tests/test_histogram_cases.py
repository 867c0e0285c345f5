"""Unit tests of rules with native histograms have the outcomes of promtool 3.15.

promtool of Debian (2.42) knows no histograms, so the outcomes are given here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tsdb.promql.evaluate.query import DEFAULTS
from tsdb.rules.unit_tests.file import load_unit_tests
from tsdb.rules.unit_tests.run import run_unit_tests

RULES = """
groups:
- name: latency
  rules:
  - {record: "job:h:sum", expr: sum by (job) (h)}
  - {record: "job:h:rate", expr: "sum by (job) (rate(h[2m]))"}
  - {record: "job:h:p50", expr: "histogram_quantile(0.5, job:h:rate)"}
  - {record: "moves", expr: "h or vector(1)"}
  - alert: Holds
    expr: h{pod="b"}
    annotations: {s: "{{ $value }} {{ with query `h{pod='b'}` }}{{ . | first | value }}{{ end }}"}
    labels: {has: "{{ if $value }}yes{{ end }}", bad: "{{ $value | humanize }}"}
"""
SERIES = """
  - {series: 'h{job="j", pod="a"}', values: '{{count:3 sum:4 buckets:[1 2]}}+{{count:2 sum:1.3 buckets:[1 1]}}x4 stale'}
  - {series: 'h{job="j", pod="b"}', values: '{{schema:1 count:4 sum:2.5 z_bucket:1 buckets:[1 0 2] offset:1}}x5 stale'}
  - {series: 'c', values: '{{schema:-53 count:3 sum:9 custom_values:[1 5] buckets:[1 1 1]}}'}
  - {series: 'g', values: '{{count:2 sum:-2 counter_reset_hint:gauge n_buckets:[1 1] n_offset:-1}}x2'}
  - {series: 'falls', values: '{{count:9 sum:9 buckets:[9]}}-{{count:3 sum:3 buckets:[3]}}x2'}
"""
HEAD = f"rule_files: [rules.yaml]\ntests:\n- interval: 1m\n  input_series:{SERIES}"
HOLDS = [
    ("h{pod='a'}", "0m", "h{job=\"j\", pod=\"a\"}", "{{count:3 sum:4 buckets:[1 2]}}"),
    ("h{pod='a'}", "2m", "h{job=\"j\", pod=\"a\"}", "{{count:7 sum:6.6 counter_reset_hint:not_reset buckets:[3 4]}}"),
    ("job:h:sum", "1m", 'job:h:sum{job="j"}',
     "{{count:9 sum:7.8 z_bucket:1 counter_reset_hint:not_reset buckets:[2 4 2]}}"),
    ("job:h:rate", "2m", 'job:h:rate{job="j"}',
     "{{count:0.03333333333333333 sum:0.021666666666666664 counter_reset_hint:gauge "
     "buckets:[0.016666666666666666 0.016666666666666666]}}"),
    ("c", "1m", "c", "{{schema:-53 count:3 sum:9 custom_values:[1 5] buckets:[1 1 1]}}"),
    ("g", "1m", "g", "{{count:2 sum:-2 counter_reset_hint:gauge n_buckets:[1 1] n_offset:-1}}"),
    ("falls", "2m", "falls", "{{count:3 sum:3 buckets:[3]}}"),
    ("-g", "1m", "", "{{count:-2 sum:2 counter_reset_hint:gauge n_buckets:[-1 -1] n_offset:-1}}"),
]  # fmt: skip
FAILS = [
    ("g", "1m", "g", "{{count:2 sum:-2 n_offset:-1 n_buckets:[1 1]}}"),
    ("c", "1m", "c", "{{schema:-53 count:3 sum:9 custom_values:[1 6] buckets:[1 1 1]}}"),
    ("c", "1m", "c", "{{count:3 sum:9 buckets:[1 1 1]}}"),
    ("vector(0)", "1m", "", "{{}}"),
]


def failures(folder: Path, tests: str) -> list[str]:
    (folder / "rules.yaml").write_text(RULES)
    (folder / "tests.yaml").write_text(HEAD + tests)
    return [one.text for one in run_unit_tests(load_unit_tests(folder / "tests.yaml"), DEFAULTS)]


def case(text: str, at: str, labels: str, histogram: str) -> str:
    sample = f"{{labels: '{labels or '{}'}', histogram: '{histogram}'}}"
    return f'  promql_expr_test: [{{expr: "{text}", eval_time: {at}, exp_samples: [{sample}]}}]\n'


@pytest.mark.parametrize(("text", "at", "labels", "histogram"), HOLDS)
def test_a_case_holds(text: str, at: str, labels: str, histogram: str, tmp_path: Path) -> None:
    assert failures(tmp_path, case(text, at, labels, histogram)) == []


@pytest.mark.parametrize(("text", "at", "labels", "histogram"), FAILS)
def test_a_case_fails_and_shows_both_histograms(
    text: str, at: str, labels: str, histogram: str, tmp_path: Path
) -> None:
    (found,) = failures(tmp_path, case(text, at, labels, histogram))
    assert f"exp: {labels or ''}" in found
    assert histogram in found


def test_a_rule_may_record_floats_of_recorded_histograms(tmp_path: Path) -> None:
    expected = "[{labels: 'job:h:p50{job=\"j\"}', value: 1}]"
    tests = f'  promql_expr_test: [{{expr: "job:h:p50", eval_time: 2m, exp_samples: {expected}}}]\n'
    assert failures(tmp_path, tests) == []


def test_an_alert_of_a_histogram_shows_it_in_templates(tmp_path: Path) -> None:
    shown = "{count:4, sum:2.5, [-0,0]:1, (1,1.414213562373095]:1, (2,2.82842712474619]:2}"
    labels = "{job: j, pod: b, has: 'yes', bad: '<error expanding template: X>'}"
    (found,) = failures(
        tmp_path,
        f"  alert_rule_test: [{{eval_time: 1m, alertname: Holds, exp_alerts: [{{exp_labels: {labels}}}]}}]\n",
    )
    assert f's="{shown} {shown}"' in found, found
    assert 'has="yes"' in found
    assert 'bad="<error expanding template: ' in found
