"""The command as a whole: every verb is there, and failures have different exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest

from support.cli import COMMAND, Shell

VERBS = [
    *(
        "standalone",
        "gateway",
        "store",
        "write",
        "agent",
        "query",
        "queries",
        "series",
        "labels",
        "cardinality",
        "coverage",
        "watch",
        "status",
    ),
    *("topics", "completion", "config"),
]


def test_every_verb_has_help(shell: Shell) -> None:
    listed = shell.ok("--help").text
    for verb in VERBS:
        assert f"\n  {verb} " in listed
        assert "Usage: tsdb" in shell.ok(verb, "--help").text


@pytest.mark.parametrize("arguments", [("nonsense",), ("query", "--nonsense"), ("topics", "nonsense")])
def test_an_unknown_verb_or_option_is_a_misuse(shell: Shell, arguments: tuple[str, ...]) -> None:
    done = shell.run(*arguments)
    assert (done.code, done.out) == (2, b"")
    [line] = done.err.splitlines()
    assert line.startswith("error: no such ")
    assert "(see: tsdb" in line


@pytest.mark.parametrize("group", [(), ("topics",), ("config", "show")])
def test_a_group_without_a_verb_shows_its_help(shell: Shell, group: tuple[str, ...]) -> None:
    done = shell.run(*group)
    assert (done.code, done.out) == (2, b"")
    assert done.err == shell.ok(*group, "--help").text


def test_the_version_is_that_of_the_package(shell: Shell) -> None:
    assert shell.ok("--version").text == f"tsdb {version('kafka-tsdb')}\n"


def commands(group: Any = COMMAND, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all commands and groups."""
    yield path
    context = group.context_class(group, info_name="tsdb")
    for name in group.list_commands(context) if hasattr(group, "list_commands") else ():
        yield from commands(group.get_command(context, name), (*path, name))


def test_commands_of_groups_are_found() -> None:
    found = set(commands())
    assert {(verb,) for verb in VERBS} < found
    assert {("topics", "create"), ("config", "show", "store"), ("spark", "rebuild"), ("holes", "accept")} < found


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_help_is_whole_at_any_width(shell: Shell, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for part in commands():
        text = shell.ok(*part, "-h").text
        assert not re.search(r"(?<![A-Z}\]])\.\.\.", text), part  # `PATH...` is an argument that repeats.
        assert max(map(len, text.splitlines())) <= columns, part
    listed = " ".join(shell.ok("-h").text.split())
    assert "status Print the state of partitions: ready or the reason, lag, content and memory" in listed


def test_a_reader_that_leaves_is_no_traceback() -> None:
    command = [sys.executable, "-m", "tsdb.cli.main", "--help"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=60)
    assert b"Traceback" not in err
