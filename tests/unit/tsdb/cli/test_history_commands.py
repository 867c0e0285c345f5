"""`tsdb history` and `tsdb holes` on embedded files: made for the log's settings, looked into, losses accepted."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from support.cli import Shell
from support.oracles.fragment_twin import bits, fragment_of
from support.servers.histories import WINDOW_MS, announcement, written
from tsdb.codec.chunk.chunk import encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.open import open_history
from tsdb.model.window import index_epoch

DAY = 400 * 24 * 3600 * 1000 // WINDOW_MS * WINDOW_MS  # Start of a window.
UP, DOWN = (announcement(0, name=name, job="a", instance="i") for name in ("up", "down"))


@pytest.fixture
def log(tmp_path: Path, shell: Shell) -> tuple[str, ...]:
    log = "--log", f"sqlite:///{tmp_path}/log.db"
    shell.ok("topics", "create", *log, "--partitions", 3, "--replication", 1)
    return log


@pytest.fixture
def history(tmp_path: Path, shell: Shell, log: tuple[str, ...]) -> tuple[str, ...]:
    history = "--history", f"sqlite:///{tmp_path}/history.db"
    made = shell.ok("history", "create", *log, *history, "--output", "json")
    assert made.json == {"made": True}
    return history


@pytest.fixture
def filled(history: tuple[str, ...]) -> tuple[str, ...]:
    with open_history(history[1]) as store:
        for number, series in enumerate((UP, DOWN)):
            for window in (DAY, DAY + WINDOW_MS):
                samples = {(series.series_id, window + 10 * at): (99, bits(float(at))) for at in range(5 + number)}
                fragment = fragment_of(samples, series.pack_id, window)
                (value,) = encode_chunk(fragment, window_ms=WINDOW_MS)
                for kind, order in ((Kind.BASE, 100), (Kind.LATE, 150)):
                    key = ChunkKey(series.pack_id, window, kind, order, 0)
                    written(lambda done, key=key, value=value: store.write(key, value, done))  # type: ignore[misc]
            epoch = index_epoch(series.series_id, DAY)
            one = announcement(epoch, name=("up", "down")[number], job="a", instance="i")
            written(lambda done, one=one: store.write_series(one, 1, done))  # type: ignore[misc]
    return history


def test_history_is_made_once_for_the_settings_of_the_log(
    shell: Shell, log: tuple[str, ...], history: tuple[str, ...]
) -> None:
    assert shell.ok("history", "create", *log, *history, "--output", "json").json == {"made": False}
    assert shell.ok("history", "check", *log, *history, "--output", "json").json == {"ok": True, "differences": []}


def test_a_history_made_for_another_log_is_refused_by_name(
    shell: Shell, history: tuple[str, ...], tmp_path: Path
) -> None:
    other = "--log", f"sqlite:///{tmp_path}/other.db"
    shell.ok("topics", "create", *other, "--partitions", 5, "--replication", 1, "--time-set", "demo")
    checked = shell.run("history", "check", *other, *history, "--output", "json")
    assert checked.code == 1
    found = "\n".join(checked.json["differences"])
    assert "partitions: this process has 5, history was made with 3" in found
    assert "time_set.window_ms: this process has 30000, history was made with 14400000" in found
    again = shell.run("history", "create", *other, *history)
    assert again.code == 1
    assert "partitions" in again.err


def test_a_history_that_was_not_made_is_told_how_to_be(shell: Shell, log: tuple[str, ...], tmp_path: Path) -> None:
    missing = "--history", f"sqlite:///{tmp_path}/none.db"
    checked = shell.run("history", "check", *log, *missing)
    assert checked.code == 1
    assert "tsdb history create" in checked.text
    for command in (("windows",), ("show", "up"), ("holes",)):
        done = shell.run(*("history", *command) if command[0] != "holes" else ("holes", "ls"), *missing)
        assert done.code == 1
        assert "tsdb history create" in done.err


def test_windows_tells_what_history_holds_of_each(shell: Shell, filled: tuple[str, ...]) -> None:
    both = shell.ok("history", "windows", *filled, "--output", "json").json["windows"]
    kinds = ("packs", "base", "late", "import", "folded")
    assert [tuple(row[kind] for kind in kinds) for row in both] == [(2, 2, 2, 0, 0)] * 2
    one = shell.ok("history", "windows", "up", *filled, "--start", DAY, "--end", DAY + 1, "--output", "json")
    (row,) = one.json["windows"]
    assert (row["start_ms"], row["packs"], row["base"]) == (DAY, 1, 1)
    assert 0 < row["bytes"] < both[0]["bytes"]
    none = shell.ok("history", "windows", "other", *filled, "--output", "json")
    assert none.json == {"windows": []}
    assert "1971-" in shell.ok("history", "windows", *filled).text


def test_show_decodes_each_chunk(shell: Shell, filled: tuple[str, ...]) -> None:
    rows = shell.ok("history", "show", "down", *filled, "--output", "json").json["chunks"]
    assert [(row["kind"], row["order"], row["series"], row["samples"], row["error"]) for row in rows] == [
        ("base", 100, 1, 6, None),
        ("late", 150, 1, 6, None),
    ] * 2
    assert rows[0]["pack"] == f"{DOWN.pack_id:016x}"


def test_show_names_what_cannot_be_decoded_and_fails(shell: Shell, filled: tuple[str, ...]) -> None:
    with closing(sqlite3.connect(filled[1].removeprefix("sqlite:///"))) as connection, connection:
        connection.execute("UPDATE chunks SET value = x'00112233' WHERE kind = 1 AND window_start = ?", (DAY,))
    shown = shell.run("history", "show", "up", *filled, "--output", "json")
    assert shown.code == 1
    assert [bool(row["error"]) for row in shown.json["chunks"]] == [False, True, False, False]


def test_losses_are_shown_before_they_are_accepted(shell: Shell, history: tuple[str, ...]) -> None:
    near, far = HoleRecord(1, 0, DAY, DAY + 10, "corrupt_record", 5), HoleRecord(2, 7, 0, 10, "corrupt_chunk", 6)
    with open_history(history[1]) as store:
        for hole in (near, far):
            written(lambda done, hole=hole: store.write_hole(hole, done))  # type: ignore[misc]
    listed = shell.ok("holes", "ls", *history, "--output", "json").json["holes"]
    assert [(row["partition"], row["reason"], row["accepted"]) for row in listed] == [
        (1, "corrupt_record", False),
        (2, "corrupt_chunk", False),
    ]
    span = "--start", DAY, "--end", DAY + 1
    shown = shell.ok("holes", "accept", *history, *span, "--output", "json")
    assert [row["partition"] for row in shown.json["holes"]] == [1]
    assert "1 would be accepted" in shown.err
    assert not any(row["accepted"] for row in shell.ok("holes", "ls", *history, "--output", "json").json["holes"])
    assert "1 accepted" in shell.ok("holes", "accept", *history, *span, "--yes").err
    after = shell.ok("holes", "ls", *history, "--output", "json").json["holes"]
    assert [row["accepted"] for row in after] == [True, False]
    only = shell.ok("holes", "ls", *history, "--partition", 2, "--output", "json").json["holes"]
    assert [row["partition"] for row in only] == [2]


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (("holes", "accept", "--history", "sqlite:///x.db"), 2, "give --start and --end"),
        (("history", "windows"), 1, "history is required"),
        (("history", "create", "--history", "sqlite:///x.db"), 2, "log is required"),
        (("history", "windows", "--history", "mysql://x"), 2, "mysql://x"),
        (("history", "show", "{", "--history", "sqlite:///x.db"), 2, "1:2: parse error"),
    ],
)
def test_a_misuse_says_what_is_wrong(shell: Shell, arguments: tuple[str, ...], code: int, what: str) -> None:
    done = shell.run(*arguments)
    assert done.code == code
    assert what in " ".join(done.err.split())
