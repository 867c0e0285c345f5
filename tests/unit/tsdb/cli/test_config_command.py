"""`tsdb config show` prints what a role would run with, and never a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cli import Shell

LOG = ("--log", "kafka://h:9092")


@pytest.mark.parametrize("role", ["gateway", "store", "standalone"])
def test_flags_beat_variables_and_variables_beat_the_file(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    (tmp_path / "tsdb.toml").write_text('log_level = "error"\nlog_prefix = "file."\ndrain_s = 7\n')
    monkeypatch.setenv("TSDB_LOG_PREFIX", "variable.")
    monkeypatch.setenv("TSDB_DRAIN_S", "8")
    where = () if role != "standalone" else ("--data-dir", tmp_path)
    shown = shell.ok(
        "config", "show", role, *LOG, *where, "--config", tmp_path / "tsdb.toml", "--drain-s", 9, "--output", "json"
    ).json
    assert (shown["log_level"], shown["log_prefix"], shown["drain_s"]) == ("error", "variable.", 9.0)


def test_secrets_are_masked(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TSDB_TOKEN", "s3cret")
    for output in ("table", "json"):
        done = shell.ok("config", "show", "gateway", *LOG, "--output", output)
        assert "s3cret" not in done.text
        assert "***" in done.text


def test_a_table_has_a_line_a_setting(shell: Shell) -> None:
    lines = [line.split() for line in shell.ok("config", "show", "store", *LOG).text.splitlines()]
    assert lines[0] == ["setting", "value"]
    assert ["log", "kafka://h:9092"] in lines
    assert ["placement_labels", "job,instance"] in lines


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("gateway",), "log is required"),
        (("gateway", *LOG, "--drain-s", "-1"), "drain_s"),
        (("gateway", *LOG, "--token", "x"), "--token"),
        (("gateway", *LOG, "--nonsense", "x"), "--nonsense"),
        (("nobody", *LOG), "nobody"),
    ],
)
def test_a_misuse_is_exit_code_2(shell: Shell, arguments: tuple[str, ...], what: str) -> None:
    done = shell.run("config", "show", *arguments)
    assert (done.code, done.out) == (2, b"")
    assert what in " ".join(done.err.split())
