"""`tsdb history backup`, `verify`, `restore` and `restore-topics` on embedded files."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cli import Shell
from support.servers.histories import announcement, row, write_rows, written
from tsdb.history.open import open_history
from tsdb.log.interface import CHUNKS
from tsdb.log.open import open_log, open_topics
from tsdb.log.topics import topic_specs

TABLES = ("chunks", "series", "holes")


@pytest.fixture
def places(tmp_path: Path, shell: Shell) -> tuple[str, ...]:
    """Options of a log and of a history with three chunks and a series."""
    log, history = f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db"
    shell.ok("topics", "create", "--log", log, "--partitions", 2, "--replication", 1)
    shell.ok("history", "create", "--log", log, "--history", history)
    with open_history(history) as store:
        write_rows(store, [row(pack, 5) for pack in (1, 2, 3)])
        written(lambda done: store.write_series(announcement(0, name="up", job="a"), 1, done))
    return "--log", log, "--history", history


def emptied(tmp_path: Path, shell: Shell, places: tuple[str, ...], name: str = "second.db") -> tuple[str, ...]:
    """The options with a new history."""
    made = (*places[:3], f"sqlite:///{tmp_path}/{name}")
    shell.ok("history", "create", *made)
    return made


def keys(history: str) -> list[int]:
    with open_history(history) as store:
        pieces = [piece for split in store.row_splits(1) for piece in store.scan(split)]
    return sorted(one.key.pack_id for piece in pieces for one in piece)


def test_a_backup_is_made_verified_and_restored(shell: Shell, places: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    made = shell.ok("history", "backup", folder, *places, "--output", "json").json
    rows = {table["table"]: table["rows"] for table in made["tables"]}
    assert (rows["chunks"], rows["series"], rows["topic.meta"]) == (3, 1, 1)
    shown = shell.ok("history", "verify", folder)
    assert "chunks" in shown.text
    assert f"backup {made['backup_id']}" in shown.err
    into = emptied(tmp_path, shell, places)
    dry = shell.ok("history", "restore", folder, *into, "--dry-run", "--output", "json")
    assert dry.json["dry_run"] is True
    assert "nothing is changed" in dry.err
    assert keys(into[3]) == []
    done = shell.ok("history", "restore", folder, *into, "--output", "json").json
    assert [table["table"] for table in done["tables"]] == list(TABLES)
    assert (done["dry_run"], done["backup_id"], keys(into[3])) == (False, made["backup_id"], [1, 2, 3])
    again = shell.run("history", "restore", folder, *into)
    assert (again.code, keys(into[3])) == (1, [1, 2, 3])
    assert "history is not empty: it has rows of chunks, series" in again.err


def test_a_damaged_backup_fails_its_verification_and_its_restore(
    shell: Shell, places: tuple[str, ...], tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    shell.ok("history", "backup", folder, *places)
    file = next((folder / "chunks").iterdir())
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    into = emptied(tmp_path, shell, places)
    for command in (("verify", folder), ("restore", folder, *into)):
        done = shell.run("history", *command)
        assert done.code == 1
        assert f"{file.name} is damaged: its SHA-256" in done.err
        assert "(damaged_file)" in done.err
    assert keys(into[3]) == []


def test_a_detached_restore_needs_no_log_and_makes_its_tables(
    shell: Shell, places: tuple[str, ...], tmp_path: Path
) -> None:
    folder, into = tmp_path / "backup", f"sqlite:///{tmp_path}/old.db"
    shell.ok("history", "backup", folder, *places, "--no-topics")
    without = shell.run("history", "restore", folder, "--history", into)
    assert (without.code, "log is required" in without.err) == (1, True)
    shell.ok("history", "restore", folder, "--history", into, "--detached", "--dry-run")
    assert not (tmp_path / "old.db").exists()
    shell.ok("history", "restore", folder, "--history", into, "--detached")
    assert keys(into) == [1, 2, 3]
    assert shell.run("history", "restore", folder, "--history", into, "--detached").code == 1


def test_topics_made_anew_are_restored(shell: Shell, places: tuple[str, ...], tmp_path: Path) -> None:
    folder, log = tmp_path / "backup", places[:2]
    with open_log(log[1]) as writer:
        writer.append_sync("metadata", 0, b"{}", key=b"up")
    shell.ok("history", "backup", folder, *places)
    full = shell.run("history", "restore-topics", folder, *log, "--topic", "metadata")
    assert (full.code, "topic metadata is not empty" in full.err) == (1, True)
    with open_topics(log[1]) as admin:
        admin.delete("metadata")
        assert admin.create(next(spec for spec in topic_specs(2, replication=1) if spec.name == "metadata"))
    for dry, records in ((("--dry-run",), 0), ((), 1)):
        done = shell.ok("history", "restore-topics", folder, *log, "--topic", "metadata", *dry, "--output", "json")
        assert done.json["tables"][0]["rows"] == 1
        with open_log(log[1]) as reader:
            assert reader.watermarks("metadata", [0])[0].high == records
    wrong = shell.run("history", "restore-topics", folder, *log, "--topic", "metrics")
    assert (wrong.code, "metrics is no compacted topic" in wrong.err) == (2, True)
    alone = shell.run("history", "restore-topics", folder, *log, "--topic", CHUNKS)
    assert (alone.code, "go together" in alone.err) == (1, True)
