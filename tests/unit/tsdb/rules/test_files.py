"""Rule files: what Prometheus accepts is accepted, and each problem has its place and rule."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.deploy_files import DEPLOY
from support.senders.prometheus import binary
from tsdb.rules.document import BYTES_MAX, DocumentError
from tsdb.rules.files import AlertingRule, RecordingRule, RuleFile, duplicates, load_rules, parse_rules

WHOLE = """
groups:
  - name: all
    interval: 1m30s
    query_offset: 10s
    limit: 7
    labels: {team: a, severity: low}
    rules:
      - record: job:up:sum
        expr: |
          sum by (job) (
            up
          )
        labels: {number: 1, yes: true, none: null}
      - alert: Down
        expr: up == 0
        for: 5m
        keep_firing_for: 1h
        labels: {severity: page}
        annotations: {summary: "{{ $labels.job }} is {{ $value | humanize }}"}
  - {name: defaults}
"""


def parsed(text: str) -> RuleFile:
    return parse_rules(text.encode(), "f.yaml")


def problems(text: str) -> list[str]:
    with pytest.raises(DocumentError) as error:
        parsed(text)
    return error.value.message.splitlines()


def rule(text: str) -> str:
    return f"groups:\n- name: g\n  rules:\n  - {text}\n"


def test_every_field_of_a_group_and_its_rules_is_read() -> None:
    group, defaults = parsed(WHOLE).groups
    assert (group.name, group.interval_ms, group.query_offset_ms, group.limit) == ("all", 90_000, 10_000, 7)
    assert (defaults.interval_ms, defaults.query_offset_ms, defaults.limit, defaults.rules) == (60_000, None, 0, ())
    record, alert = group.rules
    assert isinstance(record, RecordingRule)
    assert record.name == "job:up:sum"
    assert record.labels == {"team": "a", "severity": "low", "number": "1", "yes": "true", "none": ""}
    assert isinstance(alert, AlertingRule)
    assert (alert.name, alert.for_ms, alert.keep_firing_for_ms) == ("Down", 300_000, 3_600_000)
    assert {name: one.text for name, one in alert.labels.items()} == {"team": "a", "severity": "page"}
    assert list(alert.annotations) == ["summary"]


def test_shipped_alerts_are_read_whole() -> None:
    found = load_rules(DEPLOY / "prometheus/alerts.yaml")
    assert found.rules > 60
    assert not duplicates([found])


@pytest.mark.parametrize("text", ["", "# nothing\n", "groups:\n", "groups: []\n", "{}\n"])
def test_a_file_without_groups_has_no_rules(text: str) -> None:
    assert parsed(text).groups == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("groups:\n- name: g\n  intervall: 5s\n", "f.yaml: 3:3: field intervall not found in a group; known are name"),
        ("groups:\n- name: g\n  interval: 5q\n", 'f.yaml: 3:13: interval: not a valid duration string: "5q"'),
        ("groups:\n- name: g\n  limit: 1.5\n", 'f.yaml: 3:10: limit: "1.5" is not a whole number'),
        ("groups:\n- name: g\n  limit: -1\n", "f.yaml: 3:10: limit -1 is negative"),
        ("groups:\n- name: g\n  labels: {__name__: x}\n", 'f.yaml: 3:12: group "g": invalid label name: __name__'),
        ("groups:\n- name: g\n- name: g\n", 'f.yaml: 3:3: groupname: "g" is repeated in the same file'),
        ("groups:\n- rules: []\n", "f.yaml: 2:3: Groupname must not be empty"),
        ("groups:\n- name: g\n  name: h\n", 'f.yaml: 3:3: yaml: mapping key "name" already defined at line 2'),
        ("groups: 5\n", 'f.yaml: 1:9: cannot unmarshal "5" into a sequence: groups'),
        ("groups: [{name: a, rules: [5]}]\n", 'f.yaml: 1:28: cannot unmarshal "5" into a mapping: a rule'),
        ('groups:\n - name: "a\n', "f.yaml: 3:1: yaml: found unexpected end of stream"),
        ("a: &a [*a]\n", "f.yaml: 1:4: yaml: an alias contains itself"),
        ("a: 1\n---\nb: 1\n", "f.yaml: 2:1: yaml: but found another document"),
        (rule("{record: a, expr: sum(x}"), 'f.yaml: 4:23: group "g", rule 1, "a": could not parse expression'),
        (rule("{record: a, alert: b, expr: x}"), "only one of 'record' and 'alert' must be set"),
        (rule("{expr: x}"), "f.yaml: 4:5: group \"g\", rule 1, \"\": one of 'record' or 'alert' must be set"),
        (rule("{alert: a}"), "f.yaml: 4:5: group \"g\", rule 1, \"a\": field 'expr' must be set in rule"),
        (rule("{alert: a, expr: 'x[5m]'}"), "the expression is a range vector, must be an instant vector or a scalar"),
        (rule("{record: a, expr: x, for: 5m}"), "f.yaml: 4:31: group \"g\", rule 1, \"a\": invalid field 'for'"),
        (rule("{record: 'a{b}', expr: x}"), "braces present in the recording rule name; should it be in expr?: a{b}"),
        (rule('{record: a, expr: x, labels: {"": y}}'), 'group "g", rule 1, "a": invalid label name: '),
        (rule('{alert: a, expr: x, annotations: {"": y}}'), 'group "g", rule 1, "a": invalid annotation name: '),
        (rule("{alert: a, expr: x, for: 1z}"), 'group "g", rule 1, "a": for: not a valid duration string: "1z"'),
        (
            rule('{alert: a, expr: x, annotations: {s: "{{ $x }}"}}'),
            'f.yaml: 4:39: group "g", rule 1, "a": annotation "s": template: __alert_a:1: undefined variable "$x"',
        ),
        (
            rule('{alert: a, expr: x, labels: {s: "{{ foo }}"}}'),
            'label "s": template: __alert_a:1: function "foo" not defined',
        ),
        (rule("{alert: a, expr: x, colour: red}"), "field colour not found in a rule"),
        (rule("5"), 'f.yaml: 4:5: cannot unmarshal "5" into a mapping: a rule'),
    ],
)  # fmt: skip
def test_a_problem_has_its_place_and_rule(text: str, expected: str) -> None:
    (found,) = problems(text)
    assert expected in found


def test_one_check_shows_all_problems() -> None:
    found = problems(rule("{record: a, expr: sum(x, for: 5m}\n  - {alert: b}\n  - {alert: c, expr: ')'}"))
    assert len(found) == 4, found


def test_a_hundred_problems_are_shown_and_the_others_counted() -> None:
    found = problems("groups:\n" + "- {}\n" * 300)
    assert len(found) == 101
    assert found[-1].endswith("499 more problems")  # Each group lacks a name, and all but the first repeat it.


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xff\xfe\xfa", "not UTF-8: byte 0"),
        (b"a: " + b"[" * 100_000, "exceeded maximum nesting depth"),
        (b"x" * (BYTES_MAX + 1), f"{BYTES_MAX + 1} bytes; the limit is {BYTES_MAX}: split the file"),
        (b"\x00", "yaml: "),
    ],
)
def test_bytes_that_are_no_rules_are_refused(data: bytes, expected: str) -> None:
    with pytest.raises(DocumentError, match=expected):
        parse_rules(data, "f.yaml")


@pytest.mark.slow
def test_aliases_that_grow_without_bound_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, 12)]
    with pytest.raises(DocumentError, match="more than 1000000 values"):
        parsed("\n".join(lines))


def test_aliases_and_merges_are_written_out() -> None:
    text = """
groups:
  - name: g
    rules:
      - &base {alert: a, expr: x, for: 5m, labels: &labels {severity: page}}
      - {<<: *base, alert: b, labels: {<<: *labels, team: t}}
"""
    first, second = parsed(text).groups[0].rules
    assert isinstance(first, AlertingRule)
    assert isinstance(second, AlertingRule)
    assert (second.name, second.for_ms) == ("b", 300_000)
    assert {name: one.text for name, one in second.labels.items()} == {"severity": "page", "team": "t"}


def test_rules_that_write_the_same_series_are_found() -> None:
    rules = "{record: a, expr: x}, {record: a, expr: y}, {record: a, expr: y, labels: {b: c}}"
    assert duplicates([parsed(f"groups:\n- name: g\n  rules: [{rules}]")]) == [("a", {}, 2)]


@pytest.mark.parametrize(
    "text", [WHOLE.replace("labels: {team: a, severity: low}", "").replace("    query_offset: 10s\n", "")]
)
def test_promtool_accepts_what_is_accepted_here(text: str, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text(text)
    command = [binary("promtool"), "check", "rules", "f.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
