"""The contract of HistoryReads, the half of a history that queriers read: in a file, on a real Cassandra, and in the
Iceberg table that a keeper has made of the same records."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from support.data.chunk_rows import random_rows
from support.data.chunk_topics import Entry, append_entries, chunk_entry, marker_entry
from support.data.detail_cases import detailed_fragments
from support.data.table_rows import NAME, labels_of, settings_in
from support.oracles.fragment_twin import merged_twin, samples_of
from support.servers.histories import META, WINDOW_MS, Answers, HistoryFactory, announcement, write_rows, written
from support.servers.logs import LogFactory
from support.shared_servers import contract_history
from tsdb.codec.chunk.chunk import Fragment, decode_chunk, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, HoleKey, Kind, encode_key
from tsdb.codec.chunk.marker import HoleRecord, ProgressMarker, encode_hole
from tsdb.codec.records.series_record import Announcement, encode_announcement
from tsdb.history.iceberg.catalog import create_table, open_catalog
from tsdb.history.iceberg.keeper import KeeperOptions, _Follower
from tsdb.history.interface import ChunkRow, ClosableReads, HistoryReads, Loaded
from tsdb.history.open import open_history_admin, open_history_reads
from tsdb.history.shared_settings import history_differences, shared_rows
from tsdb.log.interface import CHUNKS, METRICS, SERIES
from tsdb.model.clock import SystemClock
from tsdb.model.details import same_details
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import PRODUCTION
from tsdb.query.history.samples import HistoryQuery, history_samples

PARTITIONS = META.partitions
HOLES = (
    HoleRecord(1, 0, 1000, 2000, "corrupt_record", 77),
    HoleRecord(2, (1 << 64) - 1, 1500, 1600, "corrupt_chunk", 3),
)
Samples = dict[tuple[int, int], tuple[int, int]]


@dataclass
class Content:
    """Records of a log, and the topic id that they got."""

    rows: list[ChunkRow]
    announced: list[tuple[Announcement, int]]
    topic_id: str = "log"

    def samples(self) -> Samples:
        return merged_twin(samples_of(decode_chunk(row.value)) for row in self.rows)


def content(seed: int) -> Content:
    rows = [*random_rows(seed, packs=5, windows=8, samples=80), *detailed_rows()]
    packs = {one: row.key.pack_id for row in rows for one in decode_chunk(row.value).series_id.tolist()}
    announced = [(Announcement(one, 0, pack, labels_of(one)), pack % PARTITIONS) for one, pack in packs.items()]
    some = [announcement(5, name="up", job="a", instance=str(number)) for number in range(100)]
    more = [announcement(5, name="down"), announcement(6, name="up", job="a", instance="0"), announcement(-1, job="x")]
    return Content(rows, announced + [(one, 2) for one in [*some, *more, *some[:3]]])


def detailed() -> Fragment:
    """Series with histograms and start timestamps, in the window behind the others."""
    given = detailed_fragments()["native_and_starts"]
    start_ms = 8 * WINDOW_MS
    return replace(given, ts_ms=given.ts_ms - given.window_start_ms + start_ms, window_start_ms=start_ms)


def detailed_rows() -> list[ChunkRow]:
    given = detailed()
    (value,) = encode_chunk(given, window_ms=WINDOW_MS)
    return [ChunkRow(ChunkKey(given.pack_id, given.window_start_ms, Kind.BASE, 10, 0), value)]


def marks(topic_id: str) -> list[Loaded]:
    return [Loaded(topic_id, number, 100 + number, 7_000 + number) for number in range(PARTITIONS)]


class History:
    """A history with the content."""

    def __init__(self, url: str, of: Content) -> None:
        self.url = url
        self.content = of
        self.reads: ClosableReads = open_history_reads(url)

    def samples(self, series: Sequence[int], start_ms: int, end_ms: int) -> Samples:
        """The samples of a read, each in one piece of it."""
        chosen = set(series)
        packs = sorted({one.pack_id for one, _ in self.content.announced if one.series_id in chosen})
        query = HistoryQuery(packs, np.array(sorted(series), np.uint64), list(map(labels_of, series)), start_ms, end_ms)
        found: Samples = {}
        for fragment in history_samples(self.reads, query, WINDOW_MS, fail, lambda _: None):
            piece = samples_of(fragment)
            assert not found.keys() & piece.keys()
            found |= piece
        return found

    def want(self, series: Sequence[int], start_ms: int, end_ms: int) -> Samples:
        chosen = set(series)
        return {
            key: one for key, one in self.content.samples().items() if key[0] in chosen and start_ms <= key[1] < end_ms
        }


def fail(*damage: object) -> None:
    raise AssertionError(damage)


def into_store(factory: HistoryFactory, of: Content) -> None:
    factory.create()
    store, answers = factory.open(), Answers()
    write_rows(store, of.rows)
    for one, partition in of.announced:
        store.write_series(one, partition, answers)
    assert set(answers.wait(len(of.announced))) == {None}
    for mark in marks(of.topic_id):
        written(lambda done, mark=mark: store.write_loaded(mark, done))  # type: ignore[misc]
    for hole in HOLES:
        written(lambda done, hole=hole: store.write_hole(hole, done))  # type: ignore[misc]


def into_table(folder: Path, of: Content) -> str:
    """The URL of the table, kept in some emissions and joined by none."""
    settings = settings_in(folder)
    with open_catalog(settings) as catalog:
        create_table(catalog, NAME, 3)
    options = KeeperOptions(settings, PRODUCTION, interval_s=0.01, shared=shared_rows(META))
    with LogFactory(f"sqlite:///{folder}/log.db", "") as logs:
        logs.create(partitions=PARTITIONS)
        log = logs.open()
        of.topic_id = log.topic_id(METRICS)
        append_entries(log, [series_of(*one) for one in of.announced])
        holes = [Entry(CHUNKS, one.partition, hole_key(one), encode_hole(one)) for one in HOLES]
        markers = [
            marker_entry(one.partition, ProgressMarker(of.topic_id, one.position, one.emitted_through_ms, 0))
            for one in marks(of.topic_id)
        ]
        entries = [*(chunk_entry(row.key.pack_id % PARTITIONS, row.key, row.value) for row in of.rows), *holes]
        for some in (entries[::3], entries[1::3], entries[2::3] + markers):
            append_entries(log, some)
            follower = _Follower(log, options, SystemClock(), "k")
            follower.step(lambda: False)
            follower.close()
    return f"iceberg+file://{folder}/catalog-files/tsdb/samples"


def hole_key(hole: HoleRecord) -> bytes:
    return encode_key(HoleKey(hole.pack_id, hole.start_ms, hole.end_ms, hole.record_offset))


def series_of(one: Announcement, partition: int) -> Entry:
    return Entry(SERIES, partition, *encode_announcement(one.series_id, one.epoch, one.pack_id, one.canonical))


@pytest.fixture(params=["sqlite", "cassandra", "table"])
def history(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[History]:
    of = content(41)
    if request.param == "table":
        found = History(into_table(tmp_path, of), of)
    else:
        sqlite = request.param == "sqlite"
        url = f"sqlite:///{tmp_path}/h.db" if sqlite else contract_history(request.getfixturevalue("cassandra"))
        with HistoryFactory(url) as factory:
            into_store(factory, of)
        found = History(url, of)
    yield found
    found.reads.close()


def test_a_read_has_each_wanted_sample_in_its_newest_version(history: History) -> None:
    generator = random.Random(42)
    known = sorted({series for series, _ in history.content.samples()})
    for _ in range(60):
        series = generator.sample(known, generator.choice([1, 3, len(known) // 2, len(known)]))
        start_ms, end_ms = sorted(generator.randrange(-WINDOW_MS, 9 * WINDOW_MS) for _ in range(2))
        assert history.samples(series, start_ms, end_ms) == history.want(series, start_ms, end_ms)
    everything = history.samples(known, -WINDOW_MS, 9 * WINDOW_MS)
    assert everything == history.content.samples()


def test_ends_of_a_range_are_exact(history: History) -> None:
    generator = random.Random(43)
    for series, ts_ms in generator.sample(sorted(history.content.samples()), 20):
        assert (series, ts_ms) in history.samples([series], ts_ms, ts_ms + 1)
        assert (series, ts_ms) not in history.samples([series], ts_ms - WINDOW_MS, ts_ms)
        assert (series, ts_ms) not in history.samples([series], ts_ms + 1, ts_ms + WINDOW_MS)


def test_histograms_and_start_timestamps_come_back(history: History) -> None:
    want = detailed()
    names = [labels_of(one) for one in want.series_id.tolist()]
    query = HistoryQuery([want.pack_id], want.series_id, names, 8 * WINDOW_MS, 9 * WINDOW_MS)
    (got,) = history_samples(history.reads, query, WINDOW_MS, fail, lambda _: None)
    assert samples_of(got) == samples_of(want)
    assert same_details(got.details, want.details)


def test_series_that_are_not_there_have_no_samples(history: History) -> None:
    assert history.samples([3, 1 << 63], 0, 9 * WINDOW_MS) == {}
    known = next(series for series, _ in history.content.samples())
    assert history.samples([known], 400 * WINDOW_MS, 500 * WINDOW_MS) == {}


def test_series_are_found_by_epoch_and_name(history: History) -> None:
    reads: HistoryReads = history.reads
    assert reads.metric_names(5) == [b"down", b"up"]
    assert reads.metric_names(6) == [b"up"]
    assert reads.metric_names(-1) == [b""]
    assert reads.metric_names(0) == [f"m{number}".encode() for number in range(7)]
    assert reads.metric_names(7) == []
    found = reads.series(5, b"up")
    some = sorted((one for one, _ in history.content.announced if one.epoch == 5), key=lambda one: one.series_id)
    up = list({one.series_id: one for one in some if b"up" in one.canonical}.values())
    assert found.series_id.tolist() == [one.series_id for one in up]
    assert found.pack_id.tolist() == [one.pack_id for one in up]
    assert found.partition.tolist() == [2] * 100
    assert found.labels == [one.canonical for one in up]
    assert found.series_id.dtype == found.pack_id.dtype == np.uint64
    assert found.partition.dtype == np.int32
    assert reads.series(5, b"").labels == []
    assert reads.series(-1, b"").labels == [announcement(-1, job="x").canonical]


def test_loaded_is_of_one_incarnation_of_the_log(history: History) -> None:
    topic_id = history.content.topic_id
    assert history.reads.loaded(topic_id) == {one.partition: one for one in marks(topic_id)}
    assert history.reads.loaded("other") == {}


def test_holes_are_found_by_partition_and_time(history: History) -> None:
    def found(partitions: Sequence[int] | None, start_ms: int, end_ms: int) -> list[HoleRecord]:
        holes = history.reads.holes(partitions, start_ms, end_ms)
        assert not any(one.accepted for one in holes)
        return sorted((one.hole for one in holes), key=lambda one: one.partition)

    assert found(None, 0, 5000) == list(HOLES)
    assert found([2, 9], 0, 5000) == [HOLES[1]]
    assert found([1], 1999, 2000) == [HOLES[0]]
    assert found([1], 2000, 5000) == []
    assert found([], 0, 5000) == []


def test_other_shared_settings_are_found_by_name(history: History) -> None:
    with open_history_admin(history.url) as admin:
        assert history_differences(admin, META) == []
        (found,) = history_differences(admin, MetaSettings(partitions=9))
    assert found == "partitions: this process has 9, history was made with 3"
