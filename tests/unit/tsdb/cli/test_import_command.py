"""`tsdb import`: blocks of Prometheus, and files, into the log of a standalone, as a table and as JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cli import Shell
from support.data.tsdb_blocks import write_block
from tsdb.log.interface import CHUNKS
from tsdb.log.open import open_log

PAST_MS = 1_577_836_800_000  # 2020
SAMPLES = [(PAST_MS + 1000 * n, float(n)) for n in range(300)]


@pytest.fixture
def data(shell: Shell, tmp_path: Path) -> Path:
    """The data folder of a standalone, which does not run."""
    folder = tmp_path / "data"
    folder.mkdir()
    places = "--log", f"sqlite:///{folder}/log.sqlite", "--history", f"sqlite:///{folder}/history.sqlite"
    shell.ok("topics", "create", *places[:2], "--partitions", 3, "--replication", 1)
    shell.ok("history", "create", *places)
    return folder


@pytest.fixture
def block(tmp_path: Path) -> Path:
    return write_block(tmp_path / "blocks" / "01A", [({"__name__": "up", "job": "j"}, SAMPLES)])


def chunks(data: Path) -> int:
    with open_log(f"sqlite:///{data}/log.sqlite") as log:
        return sum(mark.high for mark in log.watermarks(CHUNKS, range(3)).values())


def test_the_samples_of_a_block_are_in_the_log_of_the_data_folder(shell: Shell, data: Path, block: Path) -> None:
    done = shell.ok("import", block.parent, "--data-dir", data, "--no-wait", "--output", "json")
    found = done.json
    assert (found["job"], found["ok"], found["inputs"], found["samples"], found["loaded"]) == (
        "import", True, 1, 300, False,
    )  # fmt: skip
    assert chunks(data) == found["chunks"] > 0
    again = shell.ok("import", block.parent, "--data-dir", data, "--no-wait")
    figures = dict(line.split() for line in again.text.splitlines()[1:])
    assert (figures["steps_before"], figures["job_id"]) == (figures["steps"], found["job_id"])
    assert chunks(data) == found["chunks"]


def test_without_a_loader_the_command_says_what_it_waits_for_and_how_to_go_on(
    shell: Shell, data: Path, block: Path
) -> None:
    done = shell.run("import", block, "--data-dir", data, "--wait", "200ms")
    assert done.code == 1
    assert "all of it is in the log; waiting up to 0.2 s for a loader, which standalone has" in done.err
    assert "to go on, run the same command again" in done.err
    assert done.err.splitlines()[-1].endswith("(loader_behind)")


def test_refused_samples_are_an_exit_code_unless_they_are_allowed(shell: Shell, data: Path, tmp_path: Path) -> None:
    block = write_block(tmp_path / "01B", [({"__name__": "up"}, SAMPLES), ({"job": "j"}, SAMPLES[:2])])
    done = shell.run("import", block, "--data-dir", data, "--no-wait")
    assert done.code == 1
    assert [line.split() for line in done.text.splitlines()[:2]] == [["reason", "rows"], ["no_metric_name", "2"]]
    assert 'refused: no_metric_name: {"job": "j"} chunk of [' in done.err
    assert shell.ok("import", block, "--data-dir", data, "--no-wait", "--allow-rejects", "--output", "json").json["ok"]


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ((), 1, "tsdb-data/log.sqlite does not exist"),
        (("--log", "sqlite:///none.db"), 1, "none.db does not exist"),
        (("--data-dir", "@data", "--time-set", "demo"), 1, "time_set"),
        (("--data-dir", "@data", "--wait", "1s", "--no-wait"), 2, "give --wait or --no-wait"),
        (("--data-dir", "@data", "--job-id", "a b"), 1, "want 1 to 100 letters"),
        (("--data-dir", "@data", "--wait", "soon"), 2, "'soon' is not a duration"),
    ],
)
def test_what_cannot_be_done_is_named(
    shell: Shell,
    data: Path,
    block: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    code: int,
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = shell.run("import", block, *(str(data) if one == "@data" else one for one in options))
    assert done.code == code
    assert words in done.err
    assert "same command again" not in done.err


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (("nowhere",), "nowhere is no block of Prometheus and has none in it (no_input)"),
        (("01A", "01A"), "01A is given twice (block_twice)"),
        (("01N",), "01N has no meta.json: Prometheus did not finish it"),
        ((), "missing argument 'PATH...'"),
    ],
)
def test_paths_that_are_no_blocks_are_named(
    shell: Shell,
    data: Path,
    block: Path,
    monkeypatch: pytest.MonkeyPatch,
    paths: tuple[str, ...],
    words: str,
) -> None:
    monkeypatch.chdir(block.parent)
    (write_block(Path("01N"), [({"__name__": "up"}, SAMPLES)]) / "meta.json").unlink()
    done = shell.run("import", *paths, "--data-dir", data)
    assert done.code == (1 if paths else 2)
    assert words in done.err.splitlines()[-1]
    assert "same command again" not in done.err
    assert chunks(data) == 0


OLD = "time,room,temperature\n2020-01-01,kitchen,21.5\n2020-01-01T00:01Z,kitchen,22\n2020-01-01,hall,19\n"


def test_files_are_read_as_by_write_and_the_same_files_are_imported_once(
    shell: Shell, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "rooms.csv").write_text(OLD)
    (tmp_path / "more.jsonl").write_text('{"labels":{"__name__":"up"},"ts_ms":1577836800000,"value":1}\n')
    command = ("import", tmp_path / "rooms.csv", tmp_path / "more.jsonl", "--data-dir", data, "--no-wait")
    done = shell.ok(*command, "--output", "json")
    assert (done.json["samples"], done.json["announced"], done.json["rejected"]) == (4, 3, 0)
    assert f"{tmp_path}/rooms.csv: times time, metrics temperature, labels room" in done.err
    written = chunks(data)
    assert shell.ok(*command, "--output", "json").json["steps_before"] == 1
    assert chunks(data) == written
    named = ("--time", "time", "--value", "temperature", "--labels", "", "--name", "t")
    assert shell.ok("import", tmp_path / "rooms.csv", *named, *command[3:], "--output", "json").json["samples"] == 2


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("@csv", "@block"), 2, "give blocks or files, not both"),
        (("@block", "--time", "ts"), 2, "go with files, not with blocks"),
        (("@block", "--format", "csv"), 2, "go with files, not with blocks"),
        (("@csv", "--format", "xml"), 2, "'xml' is not one of 'parquet', 'csv'"),
        (("@csv", "--time", "at"), 1, "no column at; it has 'time, room, temperature'"),
        (("@csv", "--value", "room"), 1, "row 1: room: not a number: 'kitchen'"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    shell: Shell, data: Path, block: Path, tmp_path: Path, options: tuple[str, ...], code: int, words: str
) -> None:
    (tmp_path / "rooms.csv").write_text(OLD)
    places = {"@csv": str(tmp_path / "rooms.csv"), "@block": str(block)}
    done = shell.run("import", *(places.get(one, one) for one in options), "--data-dir", data)
    assert done.code == code
    assert words in done.err.splitlines()[-1]
    assert chunks(data) == 0


def test_a_broken_block_is_one_line_with_its_file(shell: Shell, data: Path, block: Path) -> None:
    (block / "index").write_bytes(b"x" * 100)
    done = shell.run("import", block, "--data-dir", data)
    (line,) = done.err.splitlines()
    assert (done.code, line.startswith(f"error: {block}/index: ")) == (1, True)
    assert line.endswith("(corrupt_block)")
