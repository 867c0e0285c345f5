"""The Parquet sink: the same content as a store given the same records, in files that are whole or not there."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from support.data.chunk_rows import random_rows
from support.oracles.history_contents import checksum_of_files, checksum_of_store
from support.servers.histories import META, Answers, announcement, row, write_rows, written
from support.servers.logs import wait_until
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.interface import ChunkSink, Loaded
from tsdb.history.open import open_history, open_history_admin, open_history_sink
from tsdb.history.parquet import sink as sink_module
from tsdb.history.shared_settings import check_history, ensure_history, history_differences, shared_rows
from tsdb.model.errors import ConfigMismatch, CorruptData, InvalidRequest, TsdbError, Unavailable
from tsdb.model.meta import MetaSettings


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_module, "FLUSH_S", 0.02)


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[ChunkSink]:
    with open_history_sink(f"parquet:///{tmp_path}/files") as sink:
        yield sink


def test_the_content_is_that_of_a_store_given_the_same_records(sink: ChunkSink, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    with open_history_admin(url) as admin:
        ensure_history(admin, META)
    rows = random_rows(7)
    shuffled = random.Random(7).sample(rows, len(rows))
    write_rows(sink, shuffled[: len(rows) // 2])
    write_rows(sink, shuffled[len(rows) // 2 :])
    with open_history(url) as store:
        write_rows(store, rows)
        assert checksum_of_files(tmp_path / "files") == checksum_of_store(store)
        covered = [one.key for one in rows if one.key.window_start_ms == 0]
        written(lambda done: store.delete_covered(covered, done))
        assert checksum_of_files(tmp_path / "files") != checksum_of_store(store)


def test_files_lie_by_day(sink: ChunkSink, tmp_path: Path) -> None:
    write_rows(sink, random_rows(1, packs=1, windows=8))
    folders = {path.parent.relative_to(tmp_path / "files").as_posix() for path in tmp_path.rglob("*.parquet")}
    assert folders == {"samples/day=1970-01-01", "samples/day=1970-01-02"}
    assert not list(tmp_path.rglob(".*"))
    with pytest.raises(InvalidRequest, match="no day") as refused:
        sink.write(row(1, 1 << 37).key, b"", Answers())
    assert refused.value.reason == "key_out_of_range"


def test_series_are_rows_with_labels_as_json(sink: ChunkSink, tmp_path: Path) -> None:
    answers = Answers()
    for number in range(3):
        sink.write_series(announcement(5, name="up", instance=str(number)), 2, answers)
    assert answers.wait(3) == [None] * 3
    rows = ds.dataset(tmp_path / "files" / "series", format="parquet").to_table().to_pylist()
    assert {row["labels"] for row in rows} == {f'{{"__name__":"up","instance":"{number}"}}' for number in range(3)}
    assert {(row["epoch"], row["partition"]) for row in rows} == {(5, 2)}


def test_the_highest_loaded_stands_and_outlives_the_sink(sink: ChunkSink, tmp_path: Path) -> None:
    for mark in (Loaded("t", 0, 5, 7), Loaded("t", 0, 4, 9), Loaded("t", 0, 5, 8), Loaded("t", 1, 0, 0)):
        written(lambda done, mark=mark: sink.write_loaded(mark, done))  # type: ignore[misc]
    with open_history_sink(f"parquet:///{tmp_path}/files") as other:
        assert other.loaded("t") == {0: Loaded("t", 0, 5, 8), 1: Loaded("t", 1, 0, 0)}
        assert other.loaded("u") == {}


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"topic_id": "t"}', '{"topic_id": "t", "partition": [], "position": 1}']
)
def test_a_loaded_file_without_its_fields_is_corrupt(sink: ChunkSink, tmp_path: Path, text: str) -> None:
    written(lambda done: sink.write_loaded(Loaded("t", 0, 5, 7), done))
    (path,) = (tmp_path / "files" / "_loaded" / "t").iterdir()
    path.write_text(text)
    with pytest.raises(CorruptData) as corrupt:
        sink.loaded("t")
    assert corrupt.value.reason == "corrupt_row"


def test_holes_come_and_go(sink: ChunkSink, tmp_path: Path) -> None:
    hole = HoleRecord(1, 5, 0, 10, "corrupt_chunk", 3)
    for _ in range(2):
        written(lambda done: sink.write_hole(hole, done))
    (path,) = (tmp_path / "files" / "_holes").iterdir()
    assert json.loads(path.read_text())["reason"] == "corrupt_chunk"
    for _ in range(2):
        written(lambda done: sink.delete_hole(hole, done))
    assert not path.exists()


def test_a_chunk_that_cannot_be_decoded_is_an_error_for_its_writer(sink: ChunkSink) -> None:
    answers = Answers()
    sink.write(row(1, 0).key, b"no chunk", answers)
    (error,) = answers.wait(1)
    assert isinstance(error, CorruptData)
    with pytest.raises(InvalidRequest, match="limit is"):
        sink.write(row(1, 0).key, bytes(1 << 20), answers)


def test_a_folder_that_cannot_be_written_is_unavailable_and_then_all_goes_on(sink: ChunkSink, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir(exist_ok=True)
    (tmp_path / "files" / "samples").write_text("in the way")
    rows = random_rows(2, packs=1, windows=1)
    with pytest.raises(Unavailable) as away:
        write_rows(sink, rows)
    assert away.value.reason == "disk_error"
    (tmp_path / "files" / "samples").unlink()
    write_rows(sink, rows)
    assert checksum_of_files(tmp_path / "files")


def test_closing_writes_the_waiting_rows_and_refuses_more(tmp_path: Path) -> None:
    answers = Answers()
    sink = open_history_sink(f"parquet:///{tmp_path}/files")
    rows = random_rows(3, packs=2, windows=1)
    for one in rows:
        sink.write(one.key, one.value, answers)
    sink.close()
    sink.close()
    assert answers.all == [None] * len(rows)
    with pytest.raises(Unavailable):
        sink.write(rows[0].key, rows[0].value, answers)


def test_a_callback_that_fails_is_raised_by_the_next_write(sink: ChunkSink) -> None:
    answers = Answers()
    one = random_rows(4, packs=1, windows=1)[0]

    def fail(error: TsdbError | None) -> None:
        answers(error)
        raise ZeroDivisionError

    def refused() -> bool:
        try:
            written(lambda done: sink.write(one.key, one.value, done))
        except ZeroDivisionError:
            return True
        return False

    sink.write(one.key, one.value, fail)
    answers.wait(1)
    wait_until(refused)


def test_the_folder_is_made_for_shared_settings_and_checked(tmp_path: Path) -> None:
    with open_history_admin(f"parquet:///{tmp_path}/files") as admin:
        assert "tsdb history create" in history_differences(admin, META)[0]
        assert admin.create(shared_rows(META))
        assert not admin.create({})
        check_history(admin, META)
        with pytest.raises(ConfigMismatch, match="partitions"):
            check_history(admin, MetaSettings(99))
        with pytest.raises(InvalidRequest):
            admin.create({}, ttl_days=1)


def test_a_parquet_folder_cannot_be_opened_for_reads(tmp_path: Path) -> None:
    with pytest.raises(ConfigMismatch, match="written by loaders"):
        open_history(f"parquet:///{tmp_path}/files")
