"""Commands that read never make a log or a history: one that is not there is named, with exit code 1."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cli import Shell

READERS = [
    ("log", "dump", "--partition", 0),
    ("log", "offsets"),
    ("topics", "check"),
    ("chunks", "dump", "--partition", 0),
    ("chunks", "find-duplicates"),
    ("chunks", "status"),
    ("dlq", "ls"),
    ("dlq", "inspect", "g"),
    ("history", "check"),
    ("history", "windows"),
    ("history", "show", "up"),
    ("holes", "ls"),
]


@pytest.mark.parametrize("command", READERS, ids=lambda command: " ".join(map(str, command[:2])))
def test_a_log_or_history_that_is_not_there_is_named_and_not_made(
    shell: Shell, tmp_path: Path, command: tuple[object, ...]
) -> None:
    of_history = command[0] == "holes" or command[1] in ("windows", "show")
    setting = "--history" if of_history else "--log"
    done = shell.run(*command, setting, f"sqlite:///{tmp_path}/nowhere/x.db")
    assert done.code == 1, done
    [line] = done.err.splitlines()
    assert f"{tmp_path}/nowhere/x.db does not exist: `tsdb" in line
    assert list(tmp_path.iterdir()) == []
