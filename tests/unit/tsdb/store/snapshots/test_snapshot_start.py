"""Start from snapshots: answers are those of a store without, and any doubt about a snapshot means a replay, with one
line and a count by reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from support.counters import sample
from support.data.heads import announcement, id_of
from support.fakes.replay_log import encoded
from support.simulation.log import SimulatedLog
from support.simulation.processes import SimulatedStore
from support.simulation.times import BEGIN_MS, TIMES
from tsdb.head.state import HeadLimits
from tsdb.log.interface import METRICS, SERIES, Group, LogRecord
from tsdb.model.clock import ManualClock
from tsdb.model.errors import ConfigMismatch, TsdbError, UnknownVersion, WrongTopic
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import SliceLengths
from tsdb.model.window import index_epoch
from tsdb.store.snapshots.folder import SnapshotFolder
from tsdb.store.snapshots.key import StoreKey
from tsdb.store.snapshots.reasons import REASONS

HOLD_MS = 2 * TIMES.least_hold_ms
FAR_MS = 10 * HOLD_MS
SERIES_COUNT = 5
UNKNOWN = 77  # A series that nobody announces.


class RenamedLog(SimulatedLog):
    """The log, whose topics can be created anew."""

    incarnation = "id"

    def topic_id(self, topic: str) -> str:
        return f"{self.incarnation}-{topic}"


class Ground:
    """One log with one partition, and a folder of snapshots."""

    def __init__(self, folder: Path) -> None:
        self.clock = ManualClock(BEGIN_MS)
        self.log = RenamedLog(1, self.clock, TIMES.ahead_ms, lambda group_id: cast(Group, None))
        self.folder = folder
        self.hold_ms = HOLD_MS
        self.announce(range(SERIES_COUNT))

    @property
    def file(self) -> Path:
        return SnapshotFolder(self.folder).file(0)

    def announce(self, numbers: range) -> None:
        for number in numbers:
            key, value = announcement(number, index_epoch(id_of(number), BEGIN_MS))
            self.log.append_sync(SERIES, 0, value, key=key)

    def write(self, records: int, series: int = SERIES_COUNT) -> None:
        """Records 200 ms apart, each with live and late samples."""
        for _ in range(records):
            self.clock.advance(200)
            now_ms = self.clock.now_ms()
            samples = ((n, now_ms - back, now_ms / (n + 1)) for n in range(series) for back in (0, 150, 2_500 * n))
            self.log.append_sync(METRICS, 0, encoded(*samples))

    def start(self, folder: Path | None = None) -> SimulatedStore:
        """A store that has applied the whole log."""
        store = SimulatedStore("one", self.log, self.clock, self.hold_ms, folder or self.folder)
        for _ in range(3):
            store.step(7)
            store.maintain()
        while store.next_offsets[0] < self.log.stretches[METRICS, 0].high:
            store.step(7)
            store.maintain()
        return store

    def last(self) -> LogRecord:
        return self.log.records(METRICS, 0)[-1]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path / "snapshots")


@pytest.fixture
def taken(ground: Ground) -> Ground:
    """A log with a snapshot of all its 200 records."""
    ground.write(200)
    assert ground.start().take_snapshots() == 1
    return ground


def test_a_start_goes_on_from_its_snapshot_with_the_answers_of_a_store_without(taken: Ground, tmp_path: Path) -> None:
    taken.announce(range(SERIES_COUNT, SERIES_COUNT + 2))
    taken.write(20, SERIES_COUNT + 2)
    before = sample("tsdb_replay_records_total")
    restored = taken.start()
    assert restored.restored == 1
    assert sample("tsdb_replay_records_total") - before == 20
    fresh = taken.start(tmp_path / "none")
    assert answers(restored) == answers(fresh)
    state, want = (store.store.partitions[0].head.state() for store in (restored, fresh))
    assert (state.applied_offset, state.watermark_ms, state.holes) == (want.applied_offset, want.watermark_ms, ())


def test_the_log_says_where_the_replay_goes_on(taken: Ground, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    taken.start()
    lines = logged(caplog)
    line = next(line for line in lines if str(line["event"]).startswith("head restored"))
    assert (line["partition"], line["offset"], line["series_offset"]) == (0, 200, SERIES_COUNT)
    assert not any(line["event"] == "replay starts" for line in lines)


def test_holes_stay(ground: Ground) -> None:
    ground.write(20)
    ground.log.append_sync(METRICS, 0, encoded((UNKNOWN, ground.clock.now_ms(), 1.0)))
    ground.log.append_sync(METRICS, 0, encoded((0, ground.clock.now_ms(), 1.0))[:-9])
    ground.write(3)
    first = ground.start()
    holes = first.store.partitions[0].head.state().holes
    assert sorted(hole.reason for hole in holes) == ["corrupt_record", "unknown_series"]
    first.take_snapshots()
    second = ground.start()
    assert second.restored == 1
    assert second.store.partitions[0].head.state().holes == holes


def test_an_idle_log_keeps_its_snapshot_for_ever(taken: Ground) -> None:
    taken.clock.advance(FAR_MS)
    assert taken.start().restored == 1


def other_value(ground: Ground) -> None:
    stretch, last = ground.log.stretches[METRICS, 0], ground.last()
    stretch.keep([*stretch.records[:-1], replace(last, value=encoded((0, last.broker_ms, -1.0)))])


def other_time(ground: Ground) -> None:
    stretch, last = ground.log.stretches[METRICS, 0], ground.last()
    stretch.keep([*stretch.records[:-1], replace(last, broker_ms=last.broker_ms - 1)])


def no_record(ground: Ground) -> None:
    stretch = ground.log.stretches[METRICS, 0]
    stretch.keep(stretch.records[:-1])


def shorter(topic: str) -> Callable[[Ground], None]:
    def cut(ground: Ground) -> None:
        stretch = ground.log.stretches[topic, 0]
        stretch.keep(stretch.records[:-2])
        stretch.high = stretch.records[-1].offset + 1

    return cut


def created_anew(ground: Ground) -> None:
    ground.log.incarnation = "other"


def trimmed_beyond(ground: Ground) -> None:
    ground.write(9)
    ground.log.trim(METRICS, 0, 205)


def trimmed_to_its_end(ground: Ground) -> None:
    ground.log.trim(METRICS, 0, 200)


def series_trimmed_beyond(ground: Ground) -> None:
    ground.announce(range(SERIES_COUNT))
    ground.log.trim(SERIES, 0, SERIES_COUNT + 2)


def long_ago(ground: Ground) -> None:
    ground.write(9)
    ground.clock.advance(FAR_MS)
    ground.announce(range(SERIES_COUNT))
    ground.write(9)


def less_hold(ground: Ground) -> None:
    ground.hold_ms += 1


def clock_back(ground: Ground) -> None:
    ground.clock.step(-6 * 60_000 - 40_000)


def cut_off(ground: Ground) -> None:
    ground.file.write_bytes(ground.file.read_bytes()[:-1])


def flipped(ground: Ground) -> None:
    data = bytearray(ground.file.read_bytes())
    data[70] ^= 1
    ground.file.write_bytes(data)


def no_file(ground: Ground) -> None:
    ground.file.unlink()
    ground.file.mkdir()


def other_format(ground: Ground) -> None:
    data = bytearray(ground.file.read_bytes())
    data[8] = 9
    ground.file.write_bytes(data)


CASES: tuple[tuple[Callable[[Ground], None], str], ...] = (
    (other_value, "foreign"),
    (other_time, "foreign"),
    (no_record, "foreign"),
    (created_anew, "foreign"),
    (shorter(METRICS), "newer_than_log"),
    (shorter(SERIES), "newer_than_log"),
    (trimmed_beyond, "stale"),
    (trimmed_to_its_end, "stale"),
    (series_trimmed_beyond, "stale"),
    (long_ago, "stale"),
    (less_hold, "settings"),
    (cut_off, "half_written"),
    (flipped, "damaged"),
    (no_file, "damaged"),
    (other_format, "version"),
)


@pytest.mark.parametrize(("change", "reason"), CASES, ids=lambda value: getattr(value, "__name__", value))
def test_any_doubt_means_a_replay_with_one_line_and_a_count(
    taken: Ground,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[Ground], None],
    reason: str,
) -> None:
    change(taken)
    before = {name: sample("tsdb_store_snapshots_passed_over_total", reason=name) for name in REASONS}
    caplog.clear()
    store = taken.start()
    assert store.restored == 0
    counts = {name: sample("tsdb_store_snapshots_passed_over_total", reason=name) for name in REASONS}
    assert {name: count - before[name] for name, count in counts.items() if count != before[name]} == {reason: 1}
    assert [line["reason"] for line in logged(caplog) if line["event"] == "snapshot passed over"] == [reason]
    assert answers(store) == answers(taken.start(tmp_path / "none"))


def test_a_snapshot_far_ahead_of_our_clock_is_passed_over(taken: Ground) -> None:
    clock_back(taken)
    store = SimulatedStore("one", taken.log, taken.clock, HOLD_MS, taken.folder)
    assert store.restored == 0


def test_the_rest_of_a_write_is_removed_with_one_line(taken: Ground, caplog: pytest.LogCaptureFixture) -> None:
    rest = taken.file.with_name(taken.file.name + ".writing")
    rest.write_bytes(b"half")
    folder = SnapshotFolder(taken.folder)
    folder.open()
    assert [line["reason"] for line in logged(caplog) if "reason" in line] == ["half_written"]
    assert not rest.exists()
    assert taken.file.exists()
    with pytest.raises(ConfigMismatch, match="in use by process"):
        SnapshotFolder(taken.folder).open()
    folder.close()


def test_a_folder_that_cannot_be_made_is_a_clear_refusal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigMismatch, match="cannot be used"):
        SnapshotFolder(tmp_path / "file" / "below").open()


KEY = StoreKey("m", "s", MetaSettings(3), SliceLengths(10, 40), 100, HeadLimits())


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("topic_id", "x", WrongTopic),
        ("series_topic_id", "x", WrongTopic),
        ("partition", 1, WrongTopic),
        ("product", "0.0.1", UnknownVersion),
        ("columns", 2, UnknownVersion),
        ("meta", {}, ConfigMismatch),
        ("slices_ms", [10, 80], ConfigMismatch),
        ("hold_ms", 99, ConfigMismatch),
        ("memory_bytes", [1, 2], ConfigMismatch),
        ("memory_bytes", None, ConfigMismatch),
    ],
)
def test_a_key_that_differs_names_the_value(name: str, value: object, error: type[TsdbError]) -> None:
    KEY.check(0, KEY.of(0))
    with pytest.raises(error, match=name):
        KEY.check(0, {**KEY.of(0), name: value})


def answers(store: SimulatedStore) -> list[bytes]:
    """All covered samples of all series, and their labels."""
    head = store.store.partitions[0].head
    refs = head.index.refs_of(np.array([id_of(number) for number in range(SERIES_COUNT + 2)], np.uint64))
    start_ms = max(head.state().coverage_start_ms, BEGIN_MS - FAR_MS)
    raw = head.gather_raw(np.sort(refs), start_ms, BEGIN_MS + 3 * FAR_MS)
    return [raw.counts.tobytes(), raw.ts_ms.tobytes(), raw.values.tobytes(), head.index.labels_of(np.sort(refs))[0]]


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, object]]:
    """The log lines so far, by field."""
    return [record.msg for record in caplog.records if isinstance(record.msg, dict)]
