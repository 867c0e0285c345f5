"""The contract of ChunkStore, on the embedded history and on a real Cassandra alike."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from stack.cassandra import NodeAccess
from support.data.chunk_cases import WINDOW_MS as FRAGMENT_WINDOW_MS
from support.data.chunk_cases import assert_same
from support.data.chunk_rows import random_rows
from support.data.detail_cases import detailed_fragments
from support.oracles.history_contents import checksum_of_files, checksum_of_store
from support.servers.histories import META, WINDOW_MS, Answers, HistoryFactory, announcement, row, write_rows, written
from tsdb.codec.chunk.chunk import decode_chunk, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history import statement_metrics as metrics
from tsdb.history.claims import loaded_anew, withdrawn
from tsdb.history.interface import ChunkRow, ChunkStore, Loaded, WindowRange
from tsdb.history.merge import merge
from tsdb.history.open import open_history_sink
from tsdb.history.rows import KEY_MAX, KEY_MIN, MONTH_MS
from tsdb.history.settings import HistorySettings
from tsdb.history.shared_settings import check_history, history_differences
from tsdb.history.sqlite.store import SqliteStore
from tsdb.model.details import same_details
from tsdb.model.errors import ConfigMismatch, InvalidRequest, Overloaded, Unavailable
from tsdb.model.meta import MetaSettings

KEYS = ((Kind.BASE, 9, 0), (Kind.BASE, 9, 1), (Kind.LATE, 9, 0), (Kind.FOLDED, 300, (1 << 32) - 1))
PACKS = (0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
EVER = WindowRange(-2 * MONTH_MS, 3 * MONTH_MS)  # The range of most tests: one statement a month and pack.


@pytest.fixture
def store(history_factory: HistoryFactory) -> ChunkStore:
    return history_factory.open()


def read(store: ChunkStore, packs: Iterable[int], windows: WindowRange = EVER) -> list[ChunkRow]:
    return [row for piece in store.read(list(packs), windows) for row in piece]


def counts() -> NDArray[np.int64]:
    """Rows, bytes and keys that this process has read from history."""
    read = metrics.read_rows_total, metrics.read_bytes_total, metrics.read_keys_total
    return np.array([one._value.get() for one in read], np.int64)


def read_sorted(rows: Iterable[ChunkRow]) -> list[ChunkRow]:
    """The rows of one pack in the order of a read."""
    return sorted(rows, key=sort_key)


def sort_key(row: ChunkRow) -> tuple[int, int, int, int]:
    return row.key.window_start_ms, row.key.order, row.key.kind, row.key.part


# Chunks.


def test_what_was_written_is_read_back_in_order_whatever_the_order_of_writes(store: ChunkStore) -> None:
    rows = [
        row(pack, window, kind=kind, order=order, part=part, value=f"{pack} {window} {kind} {order} {part}".encode())
        for pack in PACKS
        for window in (-3, 0, 1, 200)
        for kind, order, part in KEYS
    ]
    random.Random(1).shuffle(rows)
    write_rows(store, rows)
    for pack in PACKS:
        assert read(store, [pack]) == sorted((one for one in rows if one.key.pack_id == pack), key=sort_key)


def test_chunks_with_details_are_read_back_bit_for_bit(store: ChunkStore) -> None:
    fragments = list(detailed_fragments().values())
    rows = [
        ChunkRow(ChunkKey(pack, one.window_start_ms, Kind.BASE, 9, part), value)
        for pack, one in enumerate(fragments)
        for part, value in enumerate(encode_chunk(replace(one, pack_id=pack), window_ms=FRAGMENT_WINDOW_MS))
    ]
    write_rows(store, rows)
    start_ms = min(one.window_start_ms for one in fragments)
    for pack, want in enumerate(fragments):
        got = merge([decode_chunk(one.value) for one in read(store, [pack], WindowRange(start_ms, start_ms + 1))])
        assert_same(got, replace(want, pack_id=pack))
        assert same_details(got.details, want.details)


def test_packs_come_in_the_order_asked_and_no_piece_has_two(store: ChunkStore) -> None:
    write_rows(store, [row(pack, window) for pack in PACKS for window in range(3)])
    asked = [PACKS[3], 77, PACKS[0], PACKS[4]]
    pieces = list(store.read(asked, EVER))
    assert all(pieces)
    packs = [{one.key.pack_id for one in piece} for piece in pieces]
    assert all(len(some) == 1 for some in packs)
    assert [pack for pack, _ in itertools.groupby(pack for some in packs for pack in some)] == [
        PACKS[3],
        PACKS[0],
        PACKS[4],
    ]


@pytest.mark.parametrize("edge_ms", [0, 7 * WINDOW_MS, MONTH_MS, -MONTH_MS, 55 * MONTH_MS])
def test_a_range_of_windows_is_half_open_also_at_the_border_of_a_month(store: ChunkStore, edge_ms: int) -> None:
    edge = edge_ms // WINDOW_MS
    rows = [row(5, window) for window in range(edge - 3, edge + 3)]
    write_rows(store, rows)
    for first, last in itertools.combinations_with_replacement(range(edge - 3, edge + 4), 2):
        windows = WindowRange(first * WINDOW_MS, last * WINDOW_MS)
        assert read(store, [5], windows) == rows[first - edge + 3 : last - edge + 3]


def test_windows_touching_a_range_are_those_that_hold_a_moment_of_it() -> None:
    length = WINDOW_MS
    assert WindowRange.touching(0, 1, length) == WindowRange(0, length)
    assert WindowRange.touching(length - 1, length + 1, length) == WindowRange(0, 2 * length)
    assert WindowRange.touching(length, 2 * length, length) == WindowRange(length, 2 * length)
    assert WindowRange.touching(-1, 0, length) == WindowRange(-length, 0)
    assert WindowRange.touching(5, 5, length) == WindowRange(5, 5)


def test_writing_again_replaces_the_row(store: ChunkStore) -> None:
    write_rows(store, [row(1, 0, value=b"first")])
    write_rows(store, [row(1, 0, value=b"second")])
    write_rows(store, [row(1, 0, value=b"second")])
    assert read(store, [1]) == [row(1, 0, value=b"second")]


def test_deleted_rows_are_gone_and_others_are_not(store: ChunkStore) -> None:
    rows = [row(1, 0, part=part) for part in range(5)]
    write_rows(store, rows)
    absent = row(2, 0)
    for _ in range(2):
        written(lambda done: store.delete_covered([rows[1].key, rows[3].key, absent.key], done))
    assert read(store, [1]) == [rows[0], rows[2], rows[4]]
    written(lambda done: store.delete_covered([], done))
    write_rows(store, [rows[3]])
    assert read(store, [1]) == [rows[0], rows[2], rows[3], rows[4]]


def test_values_of_any_bytes_and_size_survive(store: ChunkStore) -> None:
    generator = random.Random(2)
    rows = [row(3, 0, part=part, value=generator.randbytes(size)) for part, size in enumerate((0, 1, 100_000, 524_288))]
    write_rows(store, rows)
    assert read(store, [3]) == rows


def test_much_comes_in_pieces_and_a_reader_may_stop_early(history_factory: HistoryFactory) -> None:
    store = history_factory.open(HistorySettings(page_bytes_target=256 * 1024))
    rows = [row(4, window, value=bytes([window % 256]) * 40_000) for window in range(150)]
    write_rows(store, rows)
    pieces = list(store.read([4], EVER))
    assert [one for piece in pieces for one in piece] == rows
    assert len(pieces) >= 5
    started = store.read([4], EVER)
    assert next(started) == pieces[0]
    started.close()  # type: ignore[attr-defined]  # a generator, as ChunkStore.read says
    write_rows(store, [row(4, 151)])
    assert len(read(store, [4])) == 151


def test_many_packs_are_read_at_once(store: ChunkStore) -> None:
    rows = [row(pack, 0, value=b"%d" % pack) for pack in range(1000, 1300)]
    write_rows(store, rows)
    assert read(store, [one.key.pack_id for one in rows]) == rows


def test_keys_are_listed_in_the_order_of_a_read_and_without_a_value(store: ChunkStore) -> None:
    rows = [row(6, window, kind=kind, order=order, part=part) for window in (-3, 0, 200) for kind, order, part in KEYS]
    write_rows(store, [*rows, row(7, 0)])
    before = counts()
    assert store.keys(6, EVER) == [one.key for one in read_sorted(rows)]
    assert store.keys(6, WindowRange(0, WINDOW_MS)) == [one.key for one in read_sorted(rows[4:8])]
    assert store.keys(8, EVER) == []
    rows_read, bytes_read, keys_read = counts() - before
    assert (rows_read, bytes_read) == (0, 0)
    assert keys_read == len(rows) + 4


@pytest.mark.parametrize("count", [1, 7])
def test_a_scan_of_windows_fetches_their_rows_alone(store: ChunkStore, count: int) -> None:
    generator = random.Random(4)
    packs = [*PACKS, *(generator.randrange(1 << 64) for _ in range(40))]
    rows = [row(pack, window, value=bytes(100)) for pack in packs for window in (-3, 0, 1, 2, 200)]
    write_rows(store, [*rows, row(77, 200)])
    windows = WindowRange(0, 2 * WINDOW_MS)
    before = counts()
    scanned = [one for split in store.row_splits(count) for piece in store.scan(split, windows) for one in piece]
    wanted = [one for one in rows if 0 <= one.key.window_start_ms < 2 * WINDOW_MS]
    assert len(scanned) == len(wanted)
    assert {one.key: one for one in scanned} == {one.key: one for one in wanted}
    assert all(
        [one.key for one in piece] == [one.key for one in read_sorted(piece)]
        for split in store.row_splits(count)
        for piece in store.scan(split, windows)
    )
    rows_read, bytes_read, _ = counts() - before
    assert rows_read == 2 * len(wanted), "twice: for the rows, and for their order"
    assert bytes_read == 2 * 100 * len(wanted)


@pytest.mark.parametrize("count", [1, 7, 64])
def test_token_ranges_hold_every_row_once(store: ChunkStore, count: int) -> None:
    generator = random.Random(3)
    packs = [*PACKS, *(generator.randrange(1 << 64) for _ in range(40))]
    rows = {one.key: one for pack in packs for one in (row(pack, 0), row(pack, 200), row(pack, 1, part=3))}
    write_rows(store, rows.values())
    ranges = store.row_splits(count)
    assert len(ranges) >= count
    assert (ranges[0].after, ranges[-1].through) == (KEY_MIN, KEY_MAX)
    assert all(one.through == two.after for one, two in itertools.pairwise(ranges))
    scanned = [one for tokens in ranges for piece in store.scan(tokens) for one in piece]
    assert len(scanned) == len(rows)
    assert {one.key: one for one in scanned} == rows


def test_the_bytes_of_all_chunks_are_known_about(store: ChunkStore, request: pytest.FixtureRequest) -> None:
    rows = [row(pack, window, value=bytes(5_000)) for pack in PACKS for window in range(10)]
    write_rows(store, rows)
    if isinstance(store, SqliteStore):
        assert 250_000 <= store.chunk_bytes() < 500_000
        return
    # A node itself estimates every five minutes, from the rows that are in files by then.
    node: NodeAccess = request.getfixturevalue("cassandra")
    node.flush()
    node.estimate_sizes()
    assert store.chunk_bytes() >= 125_000, "few packs are estimated too high, never much too low"


# Refusals.


def test_a_value_over_the_limit_is_refused_before_it_is_sent(history_factory: HistoryFactory) -> None:
    store = history_factory.open(HistorySettings(part_bytes_max=1000))
    answers = Answers()
    with pytest.raises(InvalidRequest, match="1001 bytes; limit is 1000") as refused:
        store.write(row(1, 0).key, bytes(1001), answers)
    assert refused.value.reason == "chunk_too_large"
    written(lambda done: store.write(row(1, 0).key, bytes(1000), done))
    assert answers.all == []


@pytest.mark.parametrize(
    "key",
    [
        ChunkKey(-1, 0, Kind.BASE, 0, 0),
        ChunkKey(1 << 64, 0, Kind.BASE, 0, 0),
        ChunkKey(1, 1 << 63, Kind.BASE, 0, 0),
        ChunkKey(1, 0, Kind.BASE, 1 << 63, 0),
        ChunkKey(1, 0, Kind.BASE, -1, 0),
        ChunkKey(1, 0, Kind.BASE, 0, 1 << 32),
    ],
)
def test_a_key_that_no_column_holds_is_refused(store: ChunkStore, key: ChunkKey) -> None:
    with pytest.raises(InvalidRequest) as refused:
        store.write(key, b"", Answers())
    assert refused.value.reason == "key_out_of_range"


def test_a_write_waits_for_room_and_is_refused_when_there_is_none_in_time(history_factory: HistoryFactory) -> None:
    settings = HistorySettings(part_bytes_max=100_000, inflight_bytes_max=100_000, write_timeout_s=0.5)
    store = history_factory.open(settings)
    # The store is connected now, so a slow answer has another reason.
    written(lambda done: store.write(row(1, 0).key, b"", done))
    held, release = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        held.set()
        release.wait(10)

    store.write(row(1, 1).key, bytes(60_000), hold)
    assert held.wait(10)
    with pytest.raises(Overloaded, match="limit is 100000") as refused:
        store.write(row(1, 2).key, bytes(60_000), Answers())
    assert refused.value.reason == "inflight_full"
    release.set()
    written(lambda done: store.write(row(1, 2).key, bytes(60_000), done))


def test_after_close_nothing_is_written(history_factory: HistoryFactory) -> None:
    store = history_factory.open()
    answers = Answers()
    for window in range(100):
        store.write(row(1, window).key, b"x", answers)
    store.close()
    store.close()
    assert answers.all == [None] * 100
    with pytest.raises(Unavailable):
        store.write(row(1, 0).key, b"x", answers)
    assert len(read(history_factory.open(), [1])) == 100


# Load progress.


def test_of_several_loaded_the_highest_stands_in_whatever_order_they_come(store: ChunkStore) -> None:
    marks = [Loaded("topic", 2, position, through) for position in (0, 5, 9, 1 << 50) for through in (0, 100, 1 << 45)]
    for seed in range(3):
        random.Random(seed).shuffle(marks)
        for mark in marks:
            written(lambda done, mark=mark: store.write_loaded(mark, done))  # type: ignore[misc]
        assert store.loaded("topic") == {2: Loaded("topic", 2, 1 << 50, 1 << 45)}


def test_loaded_is_of_one_incarnation_of_the_log(store: ChunkStore) -> None:
    for mark in (Loaded("old", 0, 900, 10), Loaded("new", 0, 3, 5), Loaded("new", 1, 0, 5)):
        written(lambda done, mark=mark: store.write_loaded(mark, done))  # type: ignore[misc]
    assert store.loaded("new") == {0: Loaded("new", 0, 3, 5), 1: Loaded("new", 1, 0, 5)}
    assert store.loaded("none") == {}
    assert store.loaded_topics() == ["new", "old"]


def test_a_withdrawn_claim_does_not_stand_and_a_higher_one_does(store: ChunkStore) -> None:
    older = Loaded("topic", 0, 90, 5)
    for mark in (older, Loaded("topic", 1, 90, 5), withdrawn(older), loaded_anew("topic", 0, 1_700_000_000_000)):
        written(lambda done, mark=mark: store.write_loaded(mark, done))  # type: ignore[misc]
    assert store.loaded("topic") == {1: Loaded("topic", 1, 90, 5)}
    written(lambda done: store.write_loaded(older, done))
    assert 0 not in store.loaded("topic")
    for mark in (Loaded("topic", 0, 90, 6), Loaded("topic", 0, 91, 0)):
        written(lambda done, mark=mark: store.write_loaded(mark, done))  # type: ignore[misc]
        assert store.loaded("topic")[0] == mark
    assert store.loaded_topics() == ["topic"]


# Holes.

HOLE = HoleRecord(1, 0, 1000, 2000, "corrupt_record", 77)
PACK_HOLE = HoleRecord(2, (1 << 64) - 1, 1500, 1600, "corrupt_chunk", 0)


def test_holes_are_found_by_partition_and_time(store: ChunkStore) -> None:
    for hole in (HOLE, PACK_HOLE, HOLE):
        written(lambda done, hole=hole: store.write_hole(hole, done))  # type: ignore[misc]
    assert [one.hole for one in store.holes(None, 0, 5000)] == [HOLE, PACK_HOLE]
    assert [one.hole for one in store.holes([2, 9], 0, 5000)] == [PACK_HOLE]
    assert [one.hole for one in store.holes([1], 1999, 2000)] == [HOLE]
    assert store.holes([1], 2000, 5000) == []
    assert store.holes([1], 0, 1000) == []
    assert store.holes([], 0, 5000) == []


def test_an_accepted_hole_stays_accepted_when_it_is_found_again(store: ChunkStore) -> None:
    for hole in (HOLE, PACK_HOLE):
        written(lambda done, hole=hole: store.write_hole(hole, done))  # type: ignore[misc]
    written(lambda done: store.accept_hole(HOLE, done))
    written(lambda done: store.write_hole(HOLE, done))
    assert [(one.hole, one.accepted) for one in store.holes(None, 0, 5000)] == [(HOLE, True), (PACK_HOLE, False)]


def test_a_hole_made_good_is_gone(store: ChunkStore) -> None:
    written(lambda done: store.write_hole(HOLE, done))
    written(lambda done: store.accept_hole(HOLE, done))
    written(lambda done: store.delete_hole(HOLE, done))
    assert store.holes(None, 0, 5000) == []


# Series of the past.


def test_a_scan_of_the_series_index_has_each_row_once(store: ChunkStore) -> None:
    rows = {
        (one, number % 3)
        for number in range(60)
        for one in (announcement(number % 3 - 1, name=f"m{number % 4}", instance=str(number)),)
    } | {(announcement(epoch, job="no name"), 1) for epoch in (-(1 << 31), (1 << 31) - 1)}
    answers = Answers()
    for one, partition in rows:
        store.write_series(one, partition, answers)
    assert set(answers.wait(len(rows))) == {None}
    pieces = list(store.scan_series())
    assert all(pieces)
    found = [row for piece in pieces for row in piece]
    assert len(found) == len(rows)
    assert set(found) == rows


def test_series_are_found_by_epoch_and_name(store: ChunkStore) -> None:
    some = [announcement(5, name="up", job="a", instance=str(number)) for number in range(100)]
    other = [announcement(5, name="down"), announcement(6, name="up", job="a", instance="0"), announcement(-1, job="x")]
    answers = Answers()
    for one in [*some, *other, *some[:3]]:
        store.write_series(one, 2, answers)
    assert answers.wait(106) == [None] * 106
    assert store.epochs() == [-1, 5, 6]
    assert store.metric_names(5) == [b"down", b"up"]
    assert store.metric_names(6) == [b"up"]
    assert store.metric_names(-1) == [b""]
    assert store.metric_names(7) == []
    found = store.series(5, b"up")
    some.sort(key=lambda one: one.series_id)
    assert found.series_id.tolist() == [one.series_id for one in some]
    assert found.pack_id.tolist() == [one.pack_id for one in some]
    assert found.partition.tolist() == [2] * 100
    assert found.labels == [one.canonical for one in some]
    assert found.series_id.dtype == found.pack_id.dtype == np.uint64
    assert len(store.series(6, b"up").labels) == 1
    assert store.series(5, b"").labels == []
    assert store.series(-1, b"").labels == [other[2].canonical]


# The file sink beside the store.


def test_the_file_sink_holds_what_the_store_holds(store: ChunkStore, tmp_path: Path) -> None:
    rows = random_rows(11)
    with open_history_sink(f"parquet:///{tmp_path}/files") as sink:
        answers = Answers()
        for one in rows:
            sink.write(one.key, one.value, answers)
        write_rows(store, rows)
        assert answers.wait(len(rows)) == [None] * len(rows)
    assert checksum_of_files(tmp_path / "files") == checksum_of_store(store)


# Counting.


def test_every_statement_is_counted(store: ChunkStore) -> None:
    def counted(kind: str) -> float:
        return metrics.statements_total.labels(kind)._value.get()  # type: ignore[no-any-return]

    before = {kind: counted(kind) for kind in metrics.WRITES}
    write_rows(store, [row(1, window) for window in range(20)])
    for number in range(5):
        one = announcement(1, name="up", instance=str(number))
        written(lambda done, one=one: store.write_series(one, 0, done))  # type: ignore[misc]
    written(lambda done: store.write_loaded(Loaded("t", 0, 1, 1), done))
    written(lambda done: store.delete_covered([row(1, 0).key, row(1, 1).key], done))
    moved = {kind: counted(kind) - before[kind] for kind in metrics.WRITES}
    assert moved == {"chunk": 20, "series": 5, "metric_name": 1, "loaded": 1, "delete": 2, "hole": 0}


# The schema.


def test_what_was_made_is_as_it_must_be_and_making_it_again_changes_nothing(history_factory: HistoryFactory) -> None:
    admin = history_factory.admin()
    assert history_differences(admin, META) == []
    assert not admin.create({"schema_version": "99"})
    check_history(admin, META)


def test_other_shared_settings_are_refused_by_name(history_factory: HistoryFactory) -> None:
    with pytest.raises(ConfigMismatch) as refused:
        check_history(history_factory.admin(), MetaSettings(partitions=9, part_bytes_max=1))
    assert "partitions: this process has 9, history was made with 3" in refused.value.message
    assert "part_bytes_max" in refused.value.message
    assert "window_ms" not in refused.value.message
