"""`tsdb rules check` names each problem with its place, as table and as JSON."""

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
