"""Any history that is backed up and restored has the same rows; any damage to the files of a backup is refused."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.backup.backups import PARTITIONS, Ground, ground
from support.examples import examples
from support.servers.histories import HistoryFactory, announcement, write_rows, written
from tsdb.backup.checks import check_files, read_manifest
from tsdb.backup.folder import BackupFolder
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.claims import read_restored
from tsdb.history.interface import ChunkRow, ChunkStore, Loaded
from tsdb.history.writes import write_sync
from tsdb.log.interface import METRICS
from tsdb.model.errors import CorruptData

EVER_MS = 1 << 61
U64 = st.integers(0, (1 << 64) - 1)
TIMES = st.integers(-(1 << 50), 1 << 50)
keys = st.builds(
    ChunkKey,
    U64,
    st.integers(-1000, 1000).map(lambda number: number * 14_400_000),
    st.sampled_from(list(Kind)),
    st.integers(0, (1 << 63) - 1),
    st.integers(0, (1 << 32) - 1),
)
chunks = st.dictionaries(keys, st.binary(max_size=200), max_size=12)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
series = st.lists(st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), names, st.integers(0, PARTITIONS - 1)), max_size=8)
holes = st.dictionaries(
    st.builds(HoleRecord, st.integers(0, 2), U64, TIMES, TIMES, text, st.integers(0, 1 << 40)).filter(
        lambda hole: hole.start_ms < hole.end_ms
    ),
    st.booleans(),
    max_size=5,
)
progress = st.dictionaries(st.integers(0, PARTITIONS - 1), st.tuples(st.integers(0, 1 << 62), TIMES))

Contents = tuple[object, ...]


def contents(store: ChunkStore) -> Contents:
    """Everything that a reader of history can see."""
    pieces = (piece for split in store.row_splits(3) for piece in store.scan(split))
    names = {epoch: store.metric_names(epoch) for epoch in store.epochs()}
    index = {
        (epoch, name): [column.tolist() for column in (rows.series_id, rows.pack_id, rows.partition)] + [rows.labels]
        for epoch, found in names.items()
        for name in found
        for rows in [store.series(epoch, name)]
    }
    return (
        {row.key: row.value for piece in pieces for row in piece},
        names,
        index,
        store.holes(None, -EVER_MS, EVER_MS),
    )


@contextmanager
def places() -> Iterator[tuple[Ground, HistoryFactory, Path]]:
    """A ground, a second empty history, and a folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        with (
            ground(f"sqlite:///{path}/log.db", f"sqlite:///{path}/history.db") as made,
            HistoryFactory(f"sqlite:///{path}/second.db") as second,
        ):
            second.create()
            yield made, second, path


@pytest.mark.slow
@settings(max_examples=examples(15))
@given(chunks, series, holes, progress)
def test_a_restored_history_has_the_same_rows(
    rows: dict[ChunkKey, bytes],
    announced: list[tuple[int, str, int]],
    losses: dict[HoleRecord, bool],
    loaded: dict[int, tuple[int, int]],
) -> None:
    with places() as (made, second, path):
        store, topic_id = made.histories.open(), made.log.topic_id(METRICS)
        write_rows(store, [ChunkRow(key, value) for key, value in rows.items()])
        for epoch, name, partition in announced:
            one = announcement(epoch, name=name, instance="i")
            written(lambda done, one=one, to=partition: store.write_series(one, to, done))  # type: ignore[misc]
        for hole, accepted in losses.items():
            write_sync(lambda done, hole=hole: store.write_hole(hole, done))  # type: ignore[misc]
            if accepted:
                write_sync(lambda done, hole=hole: store.accept_hole(hole, done))  # type: ignore[misc]
        for partition, (position, emitted_ms) in loaded.items():
            of = Loaded(topic_id, partition, position, emitted_ms)
            write_sync(lambda done, of=of: store.write_loaded(of, done))  # type: ignore[misc]
        made.back_up(path / "backup")
        made.restore(path / "backup", made.target(second))
        restored = second.open()
        assert contents(restored) == contents(store)
        assert restored.loaded(topic_id) == {}
        claims = {number: one.claim for number, one in read_restored(restored, made.log).items()}
        assert claims == store.loaded(topic_id)


def test_any_changed_or_missing_byte_of_any_file_is_refused() -> None:
    source = random.Random(7)
    with places() as (made, _, path):
        expected = made.append_windows()
        made.load(made.histories.open(), expected)
        made.back_up(path / "backup")
        place = BackupFolder(str(path / "backup"))
        files = read_manifest(place).files
        assert {file.table for file in files} >= {"chunks", "series", "holes", "topic.chunks", "topic.meta"}
        check_files(place, files, lambda size: None)
        for file in files:
            at = path / "backup" / file.name
            good = at.read_bytes()
            for damaged, reason in _damages(good, source):
                at.write_bytes(damaged) if damaged is not None else at.unlink()
                with pytest.raises(CorruptData, match=file.name) as refused:
                    check_files(place, files, lambda size: None)
                assert refused.value.reason == reason
            at.write_bytes(good)
        manifest = path / "backup" / "manifest.json"
        good = manifest.read_bytes()
        for at_byte in source.sample(range(len(good)), 40):
            manifest.write_bytes(good[:at_byte] + bytes([good[at_byte] ^ 1]) + good[at_byte + 1 :])
            with pytest.raises(CorruptData) as refused:
                read_manifest(place)
            assert refused.value.reason == "bad_manifest"


def _damages(good: bytes, source: random.Random) -> Iterator[tuple[bytes | None, str]]:
    at = source.randrange(len(good))
    yield good[:at] + bytes([good[at] ^ (1 << source.randrange(8))]) + good[at + 1 :], "damaged_file"
    yield good[:-1], "damaged_file"
    yield good + b"x", "damaged_file"
    yield None, "missing_file"
