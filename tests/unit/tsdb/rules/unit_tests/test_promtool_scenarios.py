"""The scenarios of promtool's own unit tests of rules (`cmd/promtool`, Prometheus 3.15), each written anew.

| file there | test here |
|---|---|
| unittest.yml: points, repeats, stale and missing ones | input series |
| unittest.yml: histograms | test_histogram_cases |
| unittest.yml: a single sample; rules without input; alerts; intervals | one sample; rules alone; alerts; intervals |
| long-period.yml | a hundred days between two evaluations |
| bad-input-series.yml, bad-promql.yml, bad-rules-syntax-test.yml | test_unit_tests: problems of files, failing cases |
| bad-rules-error-test.yml, failing.yml | test_unit_tests: an error of a rule; cases that fail |
| at-modifier-test.yml, negative-offset-test.yml | features |
| no-test-group-interval.yml | intervals |
| start-time-test.yml | test_unit_tests: a test may start at any time; here: times of samples |
| rules_run_fuzzy.yml, rules_run_no_fuzzy.yml | test_unit_tests: a fuzzy comparison |
| rules_run_extrafields.yml | test_files: unknown fields; here they are always refused |

`--run`, `--debug` and `--junit` of promtool have no counterpart.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tsdb.promql.evaluate.query import DEFAULTS
from tsdb.rules.unit_tests.file import load_unit_tests
from tsdb.rules.unit_tests.run import run_unit_tests

RULES = """
groups:
- name: alerts
  rules:
  - {alert: Down, expr: up == 0, for: 5m, labels: {severity: page}, annotations: {s: "{{ $labels.job }} is down"}}
  - {alert: Always, expr: 1}
- name: records
  rules:
  - {record: "job:reads:count1m", expr: "sum without (host) (count_over_time(reads[1m]))"}
  - {record: constant, expr: 7}
  - {record: fixed, expr: "reads @ 60"}
  - {record: ahead, expr: "reads offset -1m"}
"""
POINTS = """
- interval: 1m
  input_series:
  - {series: two, values: 3 4}
  - {series: again, values: 5x2}
  - {series: grows, values: 2+3x2}
  - {series: falls, values: 9-2x2}
  - {series: ends, values: 1 stale}
  - {series: holes, values: 1 _ _ _ _ _ _ 2}
  - {series: "numbers", values: "-1.5e3 +Inf -Inf NaN"}
  promql_expr_test:
  - {expr: timestamp(two), eval_time: 1m, exp_samples: [{value: 60}]}
  - {expr: timestamp(two), eval_time: 3m, exp_samples: [{value: 60}]}
  - {expr: again, eval_time: 2m, exp_samples: [{value: 5, labels: again}]}
  - {expr: grows, eval_time: 2m, exp_samples: [{value: 8, labels: grows}]}
  - {expr: falls, eval_time: 2m, exp_samples: [{value: 5, labels: "falls{}"}]}
  - {expr: ends, eval_time: 59s, exp_samples: [{value: 1, labels: ends}]}
  - {expr: ends, eval_time: 1m, exp_samples: []}
  - {expr: timestamp(holes), eval_time: 4m59s, exp_samples: [{value: 0}]}
  - {expr: holes, eval_time: 5m, exp_samples: []}
  - {expr: numbers, eval_time: 0, exp_samples: [{value: -1500, labels: numbers}]}
  - {expr: numbers, eval_time: 1m, exp_samples: [{value: +Inf, labels: numbers}]}
  - {expr: numbers, eval_time: 2m, exp_samples: [{value: -Inf, labels: numbers}]}
"""
ONE_SAMPLE = """
- input_series: [{series: one, values: 6}]
  promql_expr_test: [{expr: one, eval_time: 0, exp_samples: [{value: 6, labels: one}]}]
"""
RULES_ALONE = """
- promql_expr_test:
  - {expr: "count_over_time(constant[1h])", eval_time: 1h, exp_samples: [{value: 60}]}
  - {expr: timestamp(constant), eval_time: 1h, exp_samples: [{value: 3600}]}
"""
ALERTS = """
- interval: 1m
  input_series: [{series: 'up{job="j"}', values: 0x1440}]
  promql_expr_test:
  - expr: count by (alertname, alertstate) (ALERTS)
    eval_time: 4m
    exp_samples:
    - {labels: '{alertname="Always", alertstate="firing"}', value: 1}
    - {labels: '{alertname="Down", alertstate="pending"}', value: 1}
  alert_rule_test:
  - {eval_time: 1d, alertname: Always, exp_alerts: [{}]}
  - eval_time: 1d
    alertname: Down
    exp_alerts: [{exp_labels: {job: j, severity: page}, exp_annotations: {s: j is down}}]
  - {eval_time: 0, alertname: Always, exp_alerts: [{}]}
  - {eval_time: 0, alertname: Down, exp_alerts: []}
  - {eval_time: 4m59s, alertname: Down, exp_alerts: []}
"""
INTERVALS = """
- interval: 1s
  input_series: [{series: 'reads{job="j", host="h"}', values: 0+1x120}]
  promql_expr_test:
  - {expr: "job:reads:count1m", eval_time: 0, exp_samples: [{labels: 'job:reads:count1m{job="j"}', value: 1}]}
  - {expr: "timestamp(job:reads:count1m)", eval_time: 50s, exp_samples: [{labels: '{job="j"}', value: 0}]}
  - {expr: "job:reads:count1m", eval_time: 1m, exp_samples: [{labels: 'job:reads:count1m{job="j"}', value: 60}]}
  - {expr: "timestamp(job:reads:count1m)", eval_time: 2m59s999ms, exp_samples: [{labels: '{job="j"}', value: 120}]}
- input_series: [{series: reads, values: 0 1}]
  promql_expr_test:
  - {expr: reads, eval_time: 59s, exp_samples: [{labels: reads, value: 0}]}
  - {expr: reads, eval_time: 1m, exp_samples: [{labels: reads, value: 1}]}
"""
FEATURES = """
- interval: 1m
  input_series: [{series: reads, values: 0+1x10}]
  promql_expr_test:
  - {expr: fixed, eval_time: 5m, exp_samples: [{labels: fixed, value: 1}]}
  - {expr: "reads @ 120", eval_time: 5m, exp_samples: [{labels: reads, value: 2}]}
"""
STARTS = """
- interval: 1m
  start_timestamp: "2024-01-01T00:00:00Z"
  input_series: [{series: 'm{a="b"}', values: 10+10x15}]
  promql_expr_test:
  - {expr: time(), eval_time: 5m, exp_samples: [{value: 1704067500}]}
  - {expr: "m @ 1704067320", eval_time: 5m, exp_samples: [{labels: 'm{a="b"}', value: 30}]}
  - {expr: timestamp(m), eval_time: 5m, exp_samples: [{labels: '{a="b"}', value: 1704067500}]}
"""
LONG = """
- interval: 100d
  input_series: [{series: far, values: 0+1x1067}]
  promql_expr_test:
  - {expr: timestamp(far), eval_time: 106700d, exp_samples: [{value: 9218880000}]}
  - {expr: far, eval_time: 100d, exp_samples: [{labels: far, value: 1}]}
  - {expr: constant, eval_time: 106700d, exp_samples: [{labels: constant, value: 7}]}
"""
SCENARIOS = {
    "input series": (POINTS, "1m"),
    "one sample": (ONE_SAMPLE, "1m"),
    "rules alone": (RULES_ALONE, "1m"),
    "alerts": (ALERTS, "1m"),
    "intervals": (INTERVALS, "1m"),
    "features": (FEATURES, "1m"),
    "times of samples": (STARTS, "1m"),
    "a hundred days between two evaluations": (LONG, "100d"),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_of_promtool_passes(name: str, tmp_path: Path) -> None:
    tests, interval = SCENARIOS[name]
    (tmp_path / "rules.yaml").write_text(RULES)
    path = tmp_path / "tests.yaml"
    path.write_text(f"rule_files: [rules.yaml]\nevaluation_interval: {interval}\ntests:{tests}")
    assert [one.text for one in run_unit_tests(load_unit_tests(path), DEFAULTS)] == []
