"""`tsdb rules check` names each problem with its place, `tsdb rules test` each failed case; `tsdb rules eval` evaluates
over a server, and `tsdb rules status` shows its ruler.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from support.cli import Shell
from support.fakes.fake_reader import FakeServer
from tsdb.model.labels import canonical_labels

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


HOSTS = """groups:
- name: second
  interval: 30s
  rules:
  - alert: Hot
    expr: job:temperature:avg > 20
    for: 1m
    labels: {severity: page}
    annotations: {summary: "{{ $labels.job }} has {{ $value }}"}
- name: first
  interval: 1m
  rules:
  - {record: job:temperature:avg, expr: avg by (job) (temperature)}
  - {record: job:temperature:twice, expr: job:temperature:avg * 2}
"""


@pytest.fixture
def hosts(server: FakeServer, tmp_path: Path) -> tuple[str, ...]:
    """The arguments of an evaluation of HOSTS over a server with five minutes of samples."""
    for room, value in (("a", 20.0), ("b", 23.0)):
        labels = canonical_labels({"__name__": "temperature", "job": "j", "room": room})
        server.samples[labels] = [(ts_ms, value) for ts_ms in range(0, 300_001, 15_000)]
    (tmp_path / "hosts.yaml").write_text(HOSTS)
    return "rules", "eval", str(tmp_path / "hosts.yaml"), "--address", server.address


def test_eval_prints_what_a_ruler_would_write_at_a_time(shell: Shell, hosts: tuple[str, ...]) -> None:
    done = shell.ok(*hosts, "--at", 120_000)
    assert [line.split() for line in done.text.splitlines()[1:]] == [
        ["job:temperature:avg", 'job:temperature:avg{job="j"}', "recorded", "21.5"],
        ["job:temperature:twice", 'job:temperature:twice{job="j"}', "recorded", "43"],
        ["Hot", '{alertname="Hot",job="j",severity="page"}', "pending", "since", "1970-01-01T00:02:00.000Z", "21.5"],
    ]
    assert done.err == "4 samples in 2 evaluations of groups; nothing is written\n"


def test_eval_over_a_range_is_that_of_a_ruler_and_reads_what_other_groups_record(
    shell: Shell, hosts: tuple[str, ...]
) -> None:
    found = shell.ok(*hosts, "--start", 60_000, "--end", 240_000, "--output", "json").json
    first, second = found["groups"]
    assert (first["name"], first["at_ms"], second["at_ms"]) == ("first", 240_000, 240_000)
    (alert,) = second["rules"][0]["alerts"]
    assert (alert["state"], alert["active_at_ms"]) == ("firing", 60_000)
    assert alert["annotations"] == {"summary": "j has 21.5"}
    assert first["rules"][1]["series"] == [{"labels": {"__name__": "job:temperature:twice", "job": "j"}, "value": 43.0}]
    # Four times of two series; seven of ALERTS and ALERTS_FOR_STATE, and the end of the pending series.
    assert found["samples"] == 4 * 2 + 7 * 2 + 1


def test_eval_names_a_rule_that_fails(shell: Shell, hosts: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "hosts.yaml").write_text(
        HOSTS.replace("avg by (job) (temperature)", "temperature * on (job) temperature")
    )
    done = shell.run(*hosts, "--at", 120_000)
    assert done.code == 1
    assert f"failed: {tmp_path}/hosts.yaml: group first, rule job:temperature:avg: " in done.err


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--at", "0", "--last", "5m"), 2, "give --at for one time"),
        (("--start", "0", "--end", "900000000"), 2, "over 10000 evaluations of groups"),
        (("--at", "soon"), 2, "is neither ms since the epoch"),
        (("--enable-feature", "none"), 2, "--enable-feature none is none of"),
    ],
)
def test_an_evaluation_that_cannot_be_done_is_named(
    shell: Shell, hosts: tuple[str, ...], options: tuple[str, ...], code: int, words: str
) -> None:
    done = shell.run(*hosts, *options)
    assert done.code == code
    assert words in done.err


def test_eval_refuses_a_bad_file_with_its_place_and_a_server_that_is_away(
    shell: Shell, hosts: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text(BAD)
    done = shell.run("rules", "eval", tmp_path / "bad.yaml", "--address", hosts[-1])
    assert (done.code, done.err) == (1, f"error: {tmp_path}/bad.yaml: 3:29: {PROBLEM}\n")
    done = shell.run(*hosts[:-1], "127.0.0.1:1", "--timeout", "300ms")
    assert done.code == 1
    assert "nothing listens at 127.0.0.1:1" in done.err


ANSWER = {
    "groups": [
        {
            "name": "g",
            "file": "hosts.yaml",
            "interval": 60.0,
            "limit": 0,
            "evaluationTime": 0.0125,
            "lastEvaluation": "2026-11-20T00:00:02Z",
            "evaluatedThrough": "2026-11-20T00:00:00Z",
            "waitsFor": "partition 2 has not passed it",
            "partitions": [1, 3],
            "rules": [
                {"name": "a", "type": "recording", "health": "ok"},
                {"name": "b", "type": "alerting", "health": "err", "lastError": "too many series"},
                {
                    "name": "Hot",
                    "type": "alerting",
                    "health": "ok",
                    "alerts": [
                        {
                            "labels": {"alertname": "Hot", "room": "a"},
                            "annotations": {},
                            "state": "firing",
                            "activeAt": "2026-11-19T23:00:00Z",
                            "value": "2.15e+01",
                        }
                    ],
                },
            ],
        }
    ]
}


class Api(BaseHTTPRequestHandler):
    """/api/v1/rules with `answer`, for the token t."""

    answer: ClassVar[Any] = {}

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == "Bearer t"
        self.send_response(401 if not known else 200 if self.path == "/api/v1/rules" else 404)
        self.end_headers()
        if known:
            self.wfile.write(json.dumps({"status": "success", "data": self.answer}).encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def api(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a page; TSDB_TOKEN has its token."""
    monkeypatch.setenv("TSDB_TOKEN", "t")
    with HTTPServer(("127.0.0.1", 0), Api) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def test_status_shows_groups_with_what_they_wait_for_and_their_alerts(
    shell: Shell, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Api, "answer", ANSWER)
    done = shell.run("rules", "status", "--page", api)
    assert done.code == 1, "a rule fails"
    _, group, _, alert = done.text.splitlines()
    assert group.split() == [
        *(
            "g",
            "hosts.yaml",
            "3",
            "1",
            "0",
            "1",
            "2026-11-20T00:00:00Z",
            "0.013",
            "1,",
            "3",
            "partition",
            "2",
            "has",
            "not",
        ),
        *("passed", "it"),
    ]
    assert alert.split() == ['{alertname="Hot",room="a"}', "firing", "2026-11-19T23:00:00Z", "2.15e+01"]
    assert "failing: hosts.yaml: group g, rule b: too many series" in done.err
    assert shell.run("rules", "status", "--page", api, "--output", "json").json == ANSWER


def test_status_of_a_server_without_rules_says_how_to_have_some(
    shell: Shell, api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Api, "answer", {"groups": []})
    done = shell.ok("rules", "status", "--page", api)
    assert f"http://{api} has no rules: `tsdb standalone --rules FILE` evaluates them" in done.err


def test_a_ruler_that_cannot_be_asked_is_named_with_the_next_step(
    shell: Shell, api: str, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Api, "answer", [])
    rows = (
        (api, "is not an answer of Prometheus's HTTP API"),
        (f"http://{api}/elsewhere", "answers 404: give the --http address of a querier, a ruler or standalone"),
        ("127.0.0.1:1", "nothing listens at http://127.0.0.1:1: start `tsdb standalone --rules FILE`"),
        (server.address, "is not an answer of Prometheus's HTTP API: give the server's --http address"),
    )
    for page, words in rows:
        done = shell.run("rules", "status", "--page", page)
        assert done.code == 1
        assert words in done.err.splitlines()[-1]
    monkeypatch.delenv("TSDB_TOKEN")
    assert "wants a token: give --token-file or TSDB_TOKEN" in shell.run("rules", "status", "--page", api).err
