"""`tsdb rules check` names each problem with its place, and `tsdb rules test` each failed case."""

from __future__ import annotations

from pathlib import Path

from support.cli import Shell

GOOD = "groups:\n- name: g\n  rules: [{record: a, expr: sum(x)}, {alert: b, expr: x}]\n"
BAD = "groups:\n- name: g\n  rules: [{record: a, expr: sum(x}]\n"
PROBLEM = 'group "g", rule 1, "a": could not parse expression: 1:6: parse error: unclosed left parenthesis'


def test_good_files_are_counted(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    done = shell.run("rules", "check", tmp_path / "good.yaml", "--output", "json")
    assert done.code == 0
    (file,) = done.json["files"]
    assert file == {"file": f"{tmp_path}/good.yaml", "groups": 1, "recording": 1, "alerting": 1, "problems": []}
    assert shell.run("rules", "check", tmp_path / "good.yaml").text.split()[-5:] == [file["file"], "1", "1", "1", "0"]


def test_a_file_with_a_problem_fails_the_command_and_names_its_place(shell: Shell, tmp_path: Path) -> None:
    for name, text in (("good.yaml", GOOD), ("bad.yaml", BAD)):
        (tmp_path / name).write_text(text)
    done = shell.run("rules", "check", tmp_path / "good.yaml", tmp_path / "bad.yaml", "--output", "json")
    assert done.code == 1
    good, bad = done.json["files"]
    assert good["problems"] == []
    assert bad["problems"] == [{"line": 3, "column": 29, "text": PROBLEM}]
    assert done.err == f"{tmp_path}/bad.yaml: 3:29: {PROBLEM}\n"


def test_a_missing_file_is_a_problem(shell: Shell, tmp_path: Path) -> None:
    done = shell.run("rules", "check", tmp_path / "none.yaml")
    assert (done.code, done.err) == (1, f"{tmp_path}/none.yaml: No such file or directory\n")


def test_rules_that_write_the_same_series_are_a_warning(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "same.yaml").write_text(GOOD.replace("{alert: b, expr: x}", "{record: a, expr: y}"))
    done = shell.run("rules", "check", tmp_path / "same.yaml", "--output", "json")
    assert (done.code, done.json["duplicates"]) == (0, [{"name": "a", "labels": {}, "rules": 2}])
    assert "warning: 2 rules write a" in done.err


def test_experimental_functions_need_their_feature(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "new.yaml").write_text(GOOD.replace("sum(x)", "'limitk(1, x)'"))
    assert shell.run("rules", "check", tmp_path / "new.yaml").code == 1
    feature = ("--enable-feature", "promql-experimental-functions")
    assert shell.run("rules", "check", *feature, tmp_path / "new.yaml").code == 0
    done = shell.run("rules", "check", "--enable-feature", "none", tmp_path / "new.yaml")
    assert (done.code, "none is none of promql-experimental-functions" in done.err) == (2, True)


TESTS = """rule_files: [good.yaml]
tests:
- name: n
  input_series: [{series: 'x{a="b"}', values: '1+1x9'}]
  promql_expr_test:
  - {expr: a, eval_time: 2m, exp_samples: [{labels: a, value: 3}]}
  - {expr: a, eval_time: 2m, exp_samples: [{labels: a, value: 4}]}
"""


def test_unit_tests_are_counted_and_failures_named(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "tests.yaml").write_text(TESTS)
    done = shell.run("rules", "test", tmp_path / "tests.yaml", "--output", "json")
    assert done.code == 1
    text = 'expr: "a", time: 2m,\n    exp: a{} 4\n    got: a{} 3'
    (file,) = done.json["files"]
    assert file["failures"] == [{"test": "n", "line": 7, "text": text}]
    assert (file["tests"], file["cases"]) == (1, 2)
    assert done.err == f'{tmp_path}/tests.yaml: 7:5: test "n", {text}\n'
    (tmp_path / "tests.yaml").write_text(TESTS.replace("value: 4", "value: 3"))
    done = shell.run("rules", "test", tmp_path / "tests.yaml")
    assert (done.code, done.text.split()[-4:], done.err) == (0, [f"{tmp_path}/tests.yaml", "1", "2", "0"], "")


def test_a_file_of_tests_with_a_problem_fails_the_command(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "tests.yaml").write_text("tests: [{bad: 1}]\nrule_files: ['*.none']\n")
    done = shell.run("rules", "test", tmp_path / "tests.yaml")
    assert done.code == 1
    assert "tests.yaml: 1:10: field bad not found in a test" in done.err
    (tmp_path / "tests.yaml").write_text("tests: []\nrule_files: ['*.none']\n")
    done = shell.run("rules", "test", tmp_path / "tests.yaml")
    assert (done.code, "no file matches the pattern *.none of rule_files" in done.err) == (0, True)
