"""The command as a whole: every verb is there, imports stay light, and failures are told apart by exit code."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.cli import Shell

VERBS = [
    *("standalone", "gateway", "store", "write", "agent", "query", "series", "labels", "coverage", "watch", "status"),
    *("topics", "warmup", "config"),
]
# What a store must not carry only because it shares the command.
HEAVY = ("pyarrow", "pandas", "numba", "confluent_kafka")


def test_every_verb_has_help(shell: Shell) -> None:
    listed = shell.ok("--help").text
    for verb in VERBS:
        assert f"\n  {verb} " in listed
        assert "Usage: tsdb" in shell.ok(verb, "--help").text


@pytest.mark.parametrize("arguments", [("nonsense",), ("query", "--nonsense"), ("topics", "nonsense")])
def test_an_unknown_verb_or_option_is_a_misuse(shell: Shell, arguments: tuple[str, ...]) -> None:
    done = shell.run(*arguments)
    assert (done.code, done.out) == (2, b"")


def test_the_command_starts_without_heavy_libraries() -> None:
    code = f"import sys, tsdb.cli.main; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_reader_that_leaves_is_no_traceback() -> None:
    command = [sys.executable, "-m", "tsdb.cli.main", "--help"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert b"Traceback" not in err
