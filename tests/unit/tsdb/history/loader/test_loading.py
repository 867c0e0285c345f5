"""The effect of each kind of record on history, and the refusal of an unusable one."""

from __future__ import annotations

import dataclasses

import pytest

from support.data.chunk_topics import WINDOW_MS, Entry, chunk_entry, chunk_value, marker_entry, series_entry
from support.fakes.fake_chunk_store import FakeChunkStore, away
from tsdb.codec.chunk.key import ChunkKey, HoleKey, Kind, WindowKey, encode_key
from tsdb.codec.chunk.marker import HoleRecord, ProgressMarker, WindowMarker, encode_hole, encode_window_marker
from tsdb.codec.chunk.sections import SECTIONS_VERSION
from tsdb.codec.crc32c import crc32c
from tsdb.history.interface import Loaded
from tsdb.history.loader.errors import NotLoadable
from tsdb.history.loader.loaded_marks import LoadedMarks
from tsdb.history.loader.loader import lane_of, marker_is_due
from tsdb.history.loader.loading import Loading, freshness_seconds
from tsdb.history.loader.raises import Raises
from tsdb.history.loader.remembered import Remembered
from tsdb.log.chains import chain_of
from tsdb.log.interface import CHUNKS, SERIES
from tsdb.model.errors import Unavailable, UnknownVersion
from tsdb.model.time_set import PRODUCTION
from tsdb.parallel_consumer import PartitionStatus, Record, SpecialLane

BROKER_MS = 1_700_000_000_000
KEY = ChunkKey(77, 3 * WINDOW_MS, Kind.BASE, 500, 0)
VALUE = chunk_value(77, 3 * WINDOW_MS, 1)
PART_BYTES_MAX = 4_096
CHAIN = chain_of("loader", lambda: BROKER_MS + 5_000)
MARKER = ProgressMarker("topic", 100, WINDOW_MS, 5)


class Rig:
    """A loading over a history in dicts."""

    def __init__(self) -> None:
        self.store = FakeChunkStore()
        self.replaced: list[int] = []
        self.raises = Raises(self.store, self.replaced.extend, lambda: None)
        self.marks = LoadedMarks(self.store, self.raises)
        self.loading = Loading(self.store, self.marks, Remembered(100), PRODUCTION, PART_BYTES_MAX, CHAIN)

    def load(self, entry: Entry, offset: int = 9) -> BaseException | None:
        answers: list[BaseException | None] = []
        self.loading(record_of(entry, offset), answers.append)
        self.raises.write_all()
        assert len(answers) == 1, "answered once, and at once by this store"
        return answers[0]


def record_of(entry: Entry, offset: int = 9) -> Record:
    return Record(entry.topic, entry.partition, offset, entry.key, entry.value, BROKER_MS)


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_freshness_is_from_when_a_chunk_was_due_else_from_when_it_was_made(rig: Rig) -> None:
    counted = freshness_seconds.labels("base")._sum
    before = counted.get()
    due, entry = CHAIN.first(due_at_ms=BROKER_MS + 2_000), chunk_entry(2, KEY, VALUE)
    rig.loading(Record(CHUNKS, 2, 9, entry.key, entry.value, BROKER_MS, due), lambda error: None)
    assert counted.get() - before == pytest.approx(3.0)
    assert rig.load(chunk_entry(2, KEY, VALUE)) is None  # A record without headers is dated by its broker time.
    assert counted.get() - before == pytest.approx(8.0)


def test_a_chunk_becomes_one_row_with_its_key(rig: Rig) -> None:
    assert rig.load(chunk_entry(2, KEY, VALUE)) is None
    assert rig.store.rows == {KEY: VALUE}
    assert rig.store.writes == ["chunk"]


def test_a_null_record_deletes_the_row(rig: Rig) -> None:
    rig.load(chunk_entry(2, KEY, VALUE))
    assert rig.load(chunk_entry(2, KEY, None)) is None
    assert rig.store.rows == {}


def test_a_window_marker_writes_nothing(rig: Rig) -> None:
    value = encode_window_marker(WindowMarker(5, 1, 1, 1))
    assert rig.load(Entry(CHUNKS, 0, encode_key(WindowKey(0)), value)) is None
    assert rig.store.writes == []


def test_a_progress_marker_becomes_loaded(rig: Rig) -> None:
    assert rig.load(marker_entry(2, MARKER)) is None
    assert rig.store.loaded_rows == {("topic", 2): Loaded("topic", 2, 100, WINDOW_MS)}


def test_a_hole_is_kept_and_a_null_record_takes_it_back(rig: Rig) -> None:
    hole = HoleRecord(2, 77, 5, 50, "corrupt_record", 123)
    key = encode_key(HoleKey(77, 5, 50, 123))
    assert rig.load(Entry(CHUNKS, 2, key, encode_hole(hole))) is None
    assert rig.store.hole_list == [hole]
    assert rig.load(Entry(CHUNKS, 2, key, None)) is None
    assert rig.store.hole_list == []


def test_announcements_are_written_once_and_again_when_they_differ(rig: Rig) -> None:
    entry, announcement = series_entry(2, 1)
    other, _ = series_entry(2, 1, epoch=1)
    for one in (entry, entry, other, other, entry):
        assert rig.load(one) is None
    assert rig.store.writes == ["series", "series"]
    assert rig.store.series[announcement.series_id, 0] == (announcement, 2)


def test_an_announcement_that_failed_is_not_remembered(rig: Rig) -> None:
    entry, _ = series_entry(2, 1)
    rig.store.fault = away
    assert isinstance(rig.load(entry), Unavailable)
    rig.store.fault = lambda kind: None
    assert rig.load(entry) is None
    assert rig.store.writes == ["series", "series"]


def test_a_forgotten_announcement_is_written_again_and_a_used_one_stays() -> None:
    remembered = Remembered(10)
    for mark in range(100):
        remembered.add(mark, 0)
        assert remembered.holds(0) == (mark < 5 or remembered.holds(0))
        remembered.holds(0)
    assert len(remembered) <= 10
    assert not remembered.holds(50)


WINDOW = (77, 3 * WINDOW_MS, 4 * WINDOW_MS)
ANYWHERE = (0, BROKER_MS - PRODUCTION.accept_past_ms, BROKER_MS + PRODUCTION.ahead_ms)
FLIPPED = VALUE[:-9] + bytes([VALUE[-9] ^ 1]) + VALUE[-8:]


@pytest.mark.parametrize(
    ("entry", "where", "reason"),
    [
        (chunk_entry(2, KEY, b""), WINDOW, "corrupt_chunk"),
        (chunk_entry(2, KEY, FLIPPED), WINDOW, "corrupt_chunk"),
        (chunk_entry(2, KEY, bytes(PART_BYTES_MAX + 1)), WINDOW, "chunk_too_large"),
        (chunk_entry(2, KEY, chunk_value(78, 3 * WINDOW_MS, 1)), WINDOW, "wrong_chunk"),
        (chunk_entry(2, KEY, chunk_value(77, 4 * WINDOW_MS, 1)), WINDOW, "wrong_chunk"),
        (Entry(CHUNKS, 2, b"what is this", VALUE), ANYWHERE, "chunk_key"),
        (Entry(CHUNKS, 2, encode_key(HoleKey(77, 5, 50, 123)), b"no hole"), ANYWHERE, "chunk_marker"),
        (Entry(SERIES, 2, b"\1" * 12, b"no labels"), ANYWHERE, "corrupt_series"),
        (Entry(SERIES, 2, b"\1" * 12, None), ANYWHERE, "corrupt_series"),
    ],
)
def test_a_record_that_cannot_be_loaded_is_a_hole_and_then_refused(
    rig: Rig, entry: Entry, where: tuple[int, int, int], reason: str
) -> None:
    error = rig.load(entry, offset=321)
    assert isinstance(error, NotLoadable)
    assert error.reason == reason
    assert rig.store.hole_list == [HoleRecord(2, *where, reason, 321)]
    assert rig.store.rows == {}


def test_no_dead_letter_before_the_hole_is_known(rig: Rig) -> None:
    rig.store.fault = away
    assert isinstance(rig.load(chunk_entry(2, KEY, b"x")), Unavailable)
    assert rig.store.hole_list == []


def test_a_marker_that_cannot_be_read_is_refused_without_a_hole(rig: Rig) -> None:
    entry = marker_entry(2, MARKER)
    assert isinstance(rig.load(dataclasses.replace(entry, value=b"no marker")), NotLoadable)
    assert rig.store.writes == []


def test_a_chunk_of_a_newer_version_is_not_judged(rig: Rig) -> None:
    newer = bytearray(VALUE[:-4])
    newer[1] = SECTIONS_VERSION + 1
    answers: list[BaseException | None] = []
    with pytest.raises(UnknownVersion):
        rig.loading(
            record_of(chunk_entry(2, KEY, bytes(newer) + crc32c(bytes(newer)).to_bytes(4, "little"))), answers.append
        )
    assert rig.store.writes == []


@pytest.mark.parametrize(
    ("entry", "lane"),
    [
        (chunk_entry(2, KEY, VALUE), 77),
        (chunk_entry(2, dataclasses.replace(KEY, window_start_ms=0), None), 77),
        (marker_entry(2, MARKER), SpecialLane.BARRIER),
        (Entry(CHUNKS, 2, encode_key(WindowKey(0)), b""), SpecialLane.UNORDERED),
        (Entry(CHUNKS, 2, encode_key(HoleKey(77, 2, 3, 4)), b""), 77),
        (Entry(CHUNKS, 2, b"what", b""), b"what"),
        (Entry(SERIES, 2, b"series key", b""), b"series key"),
    ],
)
def test_records_of_a_pack_follow_one_another_and_markers_everything(entry: Entry, lane: object) -> None:
    assert lane_of(record_of(entry)) == lane


@pytest.mark.parametrize(("position", "due"), [(None, False), (4, False), (5, True), (6, True)])
def test_a_marker_waits_for_series_to_pass_its_end_offset(position: int | None, due: bool) -> None:
    record = record_of(marker_entry(2, MARKER))
    assert marker_is_due(record, lambda place: position if place == (SERIES, 2) else 1_000) is due


def status(position: int, committed: int | None) -> PartitionStatus:
    return PartitionStatus(position, committed, position, 0, 0, 0, 0, False, 1)


def test_from_zero_markers_are_kept_back_up_to_the_end_there_was_and_the_highest_is_written_then(rig: Rig) -> None:
    rig.marks.begin({2: 50}, {}, 1.0)
    higher = dataclasses.replace(MARKER, position=200)
    for offset, marker in [(10, MARKER), (30, higher), (40, MARKER)]:
        assert rig.load(marker_entry(2, marker), offset) is None
    assert rig.store.writes == []
    for chunks, series in [
        (status(50, 49), status(5, 5)),
        (status(50, None), status(5, 5)),
        (status(50, 50), status(4, 4)),
    ]:
        rig.marks.write_due({(CHUNKS, 2): chunks, (SERIES, 2): series}, 2.0)
        assert rig.store.writes == [], "nothing is loaded before it is committed"
    rig.store.fault = away
    rig.marks.write_due({(CHUNKS, 2): status(50, 50), (SERIES, 2): status(5, 5)}, 2.0)
    assert rig.marks.from_zero(2)
    rig.store.fault = lambda kind: None
    rig.marks.write_due({(CHUNKS, 2): status(50, 50), (SERIES, 2): status(5, 5)}, 2.0)
    assert rig.store.loaded_rows[("topic", 2)].position == 200
    assert not rig.marks.from_zero(2)
    rig.load(marker_entry(2, dataclasses.replace(MARKER, position=300)), 50)
    assert rig.store.loaded_rows[("topic", 2)].position == 300


def test_from_zero_no_marker_is_written_before_series_is_where_it_ended_at_the_start(rig: Rig) -> None:
    """Compaction may have removed an announcement that a marker counts on, because a later one repeats it."""
    rig.marks.begin({2: 50}, {}, 1.0, {2: 9})
    assert rig.load(marker_entry(2, MARKER), 10) is None
    assert rig.load(marker_entry(2, MARKER), 60) is None, "also one from after the start that states less"
    rig.marks.write_due({(CHUNKS, 2): status(70, 70), (SERIES, 2): status(8, 8)}, 2.0)
    assert rig.store.writes == []
    rig.marks.write_due({(CHUNKS, 2): status(70, 70), (SERIES, 2): status(9, 9)}, 2.0)
    assert rig.store.loaded_rows[("topic", 2)].position == MARKER.position
    assert not rig.marks.from_zero(2)


def test_from_zero_of_an_empty_topic_ends_at_once_without_a_write(rig: Rig) -> None:
    rig.marks.begin({2: 0}, {}, 1.0)
    rig.marks.write_due({(CHUNKS, 2): status(0, None), (SERIES, 2): status(0, None)}, 2.0)
    assert not rig.marks.from_zero(2)
    assert rig.store.writes == []


def test_from_zero_a_status_from_before_the_start_does_not_count(rig: Rig) -> None:
    rig.marks.begin({2: 50}, {}, 1.0)
    rig.load(marker_entry(2, MARKER), 10)
    rig.marks.write_due({(CHUNKS, 2): status(50, 50), (SERIES, 2): status(5, 5)}, 1.0)
    assert rig.store.writes == []
    assert rig.marks.from_zero(2)


def test_from_zero_holes_are_written_before_loaded(rig: Rig) -> None:
    holes = [HoleRecord(2, 0, -5, 50, "chunks_trimmed", 9), HoleRecord(2, 0, -5, 60, "series_trimmed", 7)]
    rig.marks.begin({2: 50}, {2: holes}, 1.0)
    shown = {(CHUNKS, 2): status(60, 60), (SERIES, 2): status(5, 5)}
    rig.store.fault = away
    rig.marks.write_due(shown, 2.0)
    assert rig.load(marker_entry(2, MARKER), 55) is None
    rig.marks.write_due(shown, 2.0)
    assert rig.store.loaded_rows == {}, "holes come first"
    rig.store.fault = lambda kind: None
    for _ in range(4):
        rig.marks.write_due(shown, 2.0)
    kept = [kind for kind in rig.store.writes if kind in ("hole", "loaded")][-3:]
    assert (kept, sorted(rig.store.hole_list, key=lambda hole: hole.end_ms)) == (["hole", "hole", "loaded"], holes)
    assert rig.store.loaded_rows[("topic", 2)].position == MARKER.position


@pytest.mark.parametrize("older", [None, Loaded("topic", 2, 99, WINDOW_MS), Loaded("topic", 2, 100, WINDOW_MS - 1)])
def test_loaded_is_not_raised_once_its_last_value_is_gone(rig: Rig, older: Loaded | None) -> None:
    assert rig.load(marker_entry(2, MARKER)) is None
    rig.store.loaded_rows.clear()
    if older is not None:
        rig.store.loaded_rows["topic", 2] = older  # A backup was put back.
    before = dict(rig.store.loaded_rows)
    higher = marker_entry(2, dataclasses.replace(MARKER, position=200))
    refused = rig.load(higher)
    assert isinstance(refused, Unavailable)
    assert refused.reason == "history_replaced"
    assert (rig.store.loaded_rows, rig.replaced) == (before, [2])
    # It starts from zero, so its first marker has no earlier one.
    rig.raises.begin([2], {})
    assert rig.load(higher) is None
    assert rig.store.loaded_rows["topic", 2].position == 200


def test_the_loaded_value_from_the_start_of_a_partition_must_still_be_there(rig: Rig) -> None:
    rig.raises.begin([1, 2], {2: Loaded("topic", 2, 70, 0)})
    assert rig.load(marker_entry(1, MARKER)) is None, "the first of a partition; it tells of the other"
    assert rig.replaced == [2]
    assert isinstance(rig.load(marker_entry(2, MARKER)), Unavailable)


def test_a_higher_value_of_another_loader_stands(rig: Rig) -> None:
    rig.load(marker_entry(2, MARKER))
    rig.store.loaded_rows["topic", 2] = Loaded("topic", 2, 500, WINDOW_MS)
    assert rig.load(marker_entry(2, dataclasses.replace(MARKER, position=200))) is None
    assert rig.replaced == []


def test_a_raise_waits_while_history_cannot_be_read(rig: Rig) -> None:
    rig.store.fault = lambda kind: Unavailable("away") if kind == "read_loaded" else None
    assert isinstance(rig.load(marker_entry(2, MARKER)), Unavailable)
    assert rig.store.writes == []


def test_announcements_are_written_again_to_a_history_that_was_emptied() -> None:
    remembered = Remembered(10)
    before = remembered.life
    remembered.add(1, before)
    remembered.forget()
    assert not remembered.holds(1)
    remembered.add(2, before)
    assert not remembered.holds(2), "written to the history before"
