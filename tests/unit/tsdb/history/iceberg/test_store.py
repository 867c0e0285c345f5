"""History read from a table refuses damage by name, follows commits, and stays right beside maintenance."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from support.data.chunk_cases import START_MS, WINDOW_MS, assert_same
from support.data.chunk_rows import random_rows
from support.data.detail_cases import detailed_fragments
from support.data.table_rows import (
    CHUNKS_ID,
    NAME,
    TOPIC_ID,
    expected,
    fragments,
    known_labels,
    labels_of,
    settings_in,
    state,
)
from tsdb.codec.chunk.chunk import Fragment
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.codec.records.series_record import Announcement
from tsdb.history.iceberg import store as store_module
from tsdb.history.iceberg import view as view_module
from tsdb.history.iceberg.catalog import create_table, load_table, open_catalog, publish, series_table
from tsdb.history.iceberg.emission import emit
from tsdb.history.iceberg.maintain import compact, expire
from tsdb.history.iceberg.series import write_series, written_offsets
from tsdb.history.iceberg.state import TableState
from tsdb.history.iceberg.store import IcebergHistory
from tsdb.history.interface import WantedSeries, WindowRange
from tsdb.history.merge import merge
from tsdb.history.open import open_history, open_history_admin, open_history_reads, open_history_sink
from tsdb.history.settings import HistorySettings
from tsdb.model.clock import ManualClock
from tsdb.model.defaults import HISTORY_DECODED_BYTES_MAX
from tsdb.model.details import same_details
from tsdb.model.errors import ConfigMismatch, CorruptData, InvalidRequest, TsdbError, Unavailable
from tsdb.ops.metrics import registry

EVER = WindowRange(0, 400 * 86_400_000)
Samples = dict[tuple[int, int], tuple[int, int]]


class Kept:
    """A table that a test fills, and history over it. A step of `clock` lets history see commits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.location = f"file://{folder}/catalog-files/tsdb/samples"
        self.catalog = open_catalog(settings_in(folder))
        self.clock = ManualClock(0)
        self.emission = 0
        self.given: list[Fragment] = []

    def create(self) -> None:
        create_table(self.catalog, NAME, 2)
        series_table(self.catalog, load_table(self.catalog, NAME), {"partitions": "3"})

    def put(self, some: Sequence[Fragment], **changes: object) -> None:
        self.emission += 1
        self.given += some
        ids = {one for fragment in some for one in fragment.series_id.tolist()}
        table = load_table(self.catalog, NAME)
        announced = [(Announcement(one, 0, 7, labels_of(one)), 0) for one in sorted(ids)]
        write_series(series_table(self.catalog, table, {}), announced, {0: self.emission})
        emit(table, some, known_labels, state_with(self.emission, **changes))
        self.step()

    def step(self) -> None:
        """History looks at the table again."""
        self.clock.advance(int(store_module.REFRESH_S * 1000))

    def history(self, decoded_bytes_max: int = HISTORY_DECODED_BYTES_MAX) -> IcebergHistory:
        return IcebergHistory(self.location, HistorySettings(decoded_bytes_max=decoded_bytes_max), self.clock)

    @property
    def ids(self) -> list[int]:
        return sorted({one for fragment in self.given for one in fragment.series_id.tolist()})

    def current(self) -> list[Path]:
        """Files of the newest snapshot; others have rows that a newer emission replaced."""
        files = load_table(self.catalog, NAME).scan().plan_files()
        return sorted(Path(one.file.file_path.removeprefix("file://")) for one in files)

    def paths(self, pattern: str) -> list[Path]:
        return sorted((self.folder / "catalog-files/tsdb/samples").rglob(pattern))


def state_with(emission: int, **changes: object) -> TableState:
    plain = state(emission)
    values = {"next_offsets": plain.next_offsets, "cut": plain.cut, **changes}
    return TableState(emission, "k", TOPIC_ID, CHUNKS_ID, **values)  # type: ignore[arg-type]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    found = Kept(tmp_path)
    yield found
    found.catalog.close()


def rows(seed: int) -> list[Fragment]:
    return fragments(random_rows(seed, packs=3, windows=8, samples=60))


def read(history: IcebergHistory, ids: Sequence[int], windows: WindowRange = EVER) -> Samples:
    wanted = WantedSeries(np.array(sorted(ids), np.uint64), lambda: {f"m{number}".encode() for number in range(7)})
    found: Samples = {}
    for piece in history.read([7], windows, wanted):
        for row in piece:
            fragment = row.fragment()
            series = np.repeat(fragment.series_id, np.diff(fragment.sample_start)).tolist()
            columns = fragment.ts_ms.tolist(), fragment.order.tolist(), fragment.value.view(np.uint64).tolist()
            for one, ts_ms, order, bits in zip(series, *columns, strict=True):
                assert (one, ts_ms) not in found
                found[one, ts_ms] = order, bits
    return found


def refusal(history: IcebergHistory, ids: Sequence[int] = (1,)) -> TsdbError:
    with pytest.raises(TsdbError) as refused:
        read(history, ids)
    return refused.value


def test_a_commit_is_seen_and_one_view_stays_between_looks(kept: Kept) -> None:
    kept.create()
    history = kept.history()
    assert history.loaded(TOPIC_ID) == {}
    some = rows(1)
    kept.put(some[:10])
    assert read(history, kept.ids) == expected(some[:10])
    version = history.index_version()
    ids = kept.ids
    kept.put(some[10:])
    kept.clock.advance(int(-store_module.REFRESH_S * 1000))
    assert history.loaded(TOPIC_ID)[0].position == 100
    kept.step()
    assert history.loaded(TOPIC_ID)[0].position == 200
    assert read(history, kept.ids) == expected(some)
    assert set(ids) <= set(kept.ids)
    assert history.index_version() != version


@pytest.mark.slow
def test_a_compaction_and_an_expiry_under_a_read_change_nothing(kept: Kept) -> None:
    kept.create()
    some = rows(2)
    for first in range(0, len(some), 12):
        kept.put(some[first : first + 12])
    history = kept.history()
    wanted = WantedSeries(np.array(kept.ids, np.uint64), lambda: {f"m{number}".encode() for number in range(7)})
    pieces = history.read([7], EVER, wanted)
    first_piece = next(pieces)
    list(compact(kept.catalog, NAME, 2))
    expire(kept.catalog, NAME, datetime.now(UTC) + timedelta(seconds=1))
    count = sum(row.fragment().samples for row in first_piece)
    count += sum(row.fragment().samples for piece in pieces for row in piece)
    assert count == len(expected(some))
    assert read(history, kept.ids) == expected(some)


def test_files_answer_while_the_catalog_is_away(kept: Kept) -> None:
    kept.create()
    some = rows(11)
    kept.put(some)
    kept.catalog.close()
    (kept.folder / "catalog.db").unlink()
    history = kept.history()
    assert read(history, kept.ids) == expected(some)
    kept.step()
    assert history.loaded(TOPIC_ID)[0].position == 100
    assert len(history.series(0, b"m0").series_id) == len([one for one in kept.ids if one % 7 == 0])


def test_details_come_back_from_emissions_and_from_a_compaction(kept: Kept) -> None:
    kept.create()
    first, *others = (detailed_fragments()[name] for name in ("native_and_starts", "starts", "native"))
    kept.put([first])
    kept.put([replace(one, series_id=one.series_id + 100 * at) for at, one in enumerate(others, 1)])
    want = merge(kept.given)
    read_back(kept, want)
    list(compact(kept.catalog, NAME, 2))
    kept.step()
    read_back(kept, want)


def read_back(kept: Kept, want: Fragment) -> None:
    wanted = WantedSeries(np.array(kept.ids, np.uint64), lambda: {f"m{number}".encode() for number in range(7)})
    windows = WindowRange(START_MS, START_MS + WINDOW_MS)
    with kept.history() as history:
        got = merge([row.fragment() for piece in history.read([7], windows, wanted) for row in piece])
    assert_same(replace(got, pack_id=want.pack_id, window_start_ms=want.window_start_ms), want)
    assert same_details(got.details, want.details)


def test_a_hint_that_goes_back_is_passed_over(kept: Kept) -> None:
    kept.create()
    kept.put(rows(3)[:5])
    older = load_table(kept.catalog, NAME)
    history = kept.history()
    kept.put(rows(4)[:5])
    assert history.loaded(TOPIC_ID)[0].position == 200
    publish(older)
    kept.step()
    assert history.loaded(TOPIC_ID)[0].position == 200


def test_rows_that_another_program_left_unsorted_are_sorted(kept: Kept) -> None:
    kept.create()
    some = rows(5)
    kept.put(some)
    for path in kept.paths("*.parquet"):
        table = pq.read_table(path)
        shuffled = table.take(np.random.default_rng(5).permutation(len(table)))
        size = path.stat().st_size
        pq.write_table(shuffled, path, compression="none", row_group_size=50)
        assert path.stat().st_size != size
    history = kept.history()
    assert read(history, kept.ids) == expected(some)
    assert read(history, kept.ids[:2]) == {key: one for key, one in expected(some).items() if key[0] in kept.ids[:2]}


# Refusals.


def test_a_table_that_is_not_published_is_unavailable_with_the_next_step(kept: Kept) -> None:
    history = kept.history()
    found = refusal(history)
    assert (type(found), found.reason) == (Unavailable, "tables_missing")
    assert "tsdb tables create" in found.message
    kept.create()
    assert read(history, [1]) == {}


def test_a_hint_that_names_nothing_is_unavailable(kept: Kept) -> None:
    kept.create()
    for content in (b"", b"../../etc/passwd", b"x" * 1000):
        (path,) = kept.paths("version-hint.text")
        path.write_bytes(content)
        found = refusal(kept.history())
        assert (type(found), found.reason) == (Unavailable, "tables_unavailable")
    path.write_bytes(b"00009-gone")
    assert refusal(kept.history()).reason == "tables_files_missing"


def test_a_table_that_another_program_changed_is_refused(kept: Kept) -> None:
    kept.create()
    kept.put(rows(6))
    history = kept.history()
    table = load_table(kept.catalog, NAME)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append():
        pass
    publish(load_table(kept.catalog, NAME))
    kept.step()
    found = refusal(history, kept.ids)
    assert (type(found), found.reason) == (ConfigMismatch, "tables_changed")
    assert "roll the table back" in found.message


@pytest.mark.parametrize("damage", ["half", "empty", "flipped"])
def test_a_half_written_file_is_corrupt_by_name(kept: Kept, damage: str) -> None:
    kept.create()
    kept.put(rows(7))
    for path in kept.paths("*.parquet"):
        data = path.read_bytes()
        changed = bytes(one ^ 0xFF for one in data[4 : len(data) // 2])
        path.write_bytes(
            {"half": data[: len(data) // 2], "empty": b"", "flipped": data[:4] + changed + data[len(data) // 2 :]}[
                damage
            ]
        )
    found = refusal(kept.history(), kept.ids)
    assert (type(found), found.reason) == (CorruptData, "tables_file_corrupt")
    assert ".parquet" in found.message


@pytest.mark.slow
def test_one_damaged_file_of_a_day_of_many_is_corrupt_by_name(kept: Kept) -> None:
    kept.create()
    some = rows(15)
    for first in range(0, len(some), 12):
        kept.put(some[first : first + 12])
    history = kept.history()
    damaged = kept.current()[-1]
    whole = damaged.read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2])
    found = refusal(history, kept.ids)
    assert (type(found), found.reason) == (CorruptData, "tables_file_corrupt")
    assert damaged.name in found.message
    damaged.write_bytes(whole)
    assert read(history, kept.ids) == expected(some)


def test_a_file_that_is_gone_from_the_newest_snapshot_is_named(kept: Kept) -> None:
    kept.create()
    kept.put(rows(8))
    for path in kept.paths("*.parquet"):
        path.unlink()
    found = refusal(kept.history(), kept.ids)
    assert (type(found), found.reason) == (CorruptData, "tables_files_missing")


def test_losses_that_are_counted_and_not_named_are_holes_of_all_times(kept: Kept) -> None:
    kept.create()
    named = HoleRecord(0, 5, 10, 20, "corrupt_chunk", 3)
    kept.put(rows(9)[:3], holes=(named,), holes_total=1)
    history = kept.history()
    assert [one.hole for one in history.holes(None, 0, 15)] == [named]
    assert history.holes(None, 20, 30) == []
    kept.put(rows(10)[:3], holes=(named,), holes_total=2)
    (found,) = history.holes([0], 1_000, 2_000)
    assert (found.hole.reason, found.accepted) == ("tables_holes_unlisted", False)


def test_programs_that_need_chunks_are_told_what_reads_a_table(tmp_path: Path) -> None:
    url = f"iceberg+file://{tmp_path}/samples"
    for opened in (open_history, open_history_sink):
        with pytest.raises(ConfigMismatch, match="kept by a loader with `tables`") as refused:
            opened(url)
        assert refused.value.reason == "history_url"
    with open_history_admin(url) as admin, pytest.raises(InvalidRequest, match="tsdb tables create"):
        admin.create({})
    with pytest.raises(ConfigMismatch, match="Parquet files are written by loaders"):
        open_history_reads(f"parquet:///{tmp_path}")


def test_many_threads_read_one_history(kept: Kept) -> None:
    kept.create()
    some = rows(11)
    kept.put(some)
    history, found = kept.history(), list[Samples]()
    threads = [threading.Thread(target=lambda: found.append(read(history, kept.ids))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected(some)] * 4


def test_shares_of_many_series_have_each_sample_once(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "BATCH_ROWS", 100)
    kept.create()
    some = rows(12)
    kept.put(some)
    assert read(kept.history(), kept.ids) == expected(some)


def test_offsets_of_the_table_of_series_are_those_of_its_last_commit(kept: Kept) -> None:
    kept.create()
    table = series_table(kept.catalog, load_table(kept.catalog, NAME), {})
    assert written_offsets(table) == {}
    kept.put(rows(13)[:2])
    kept.put(rows(14)[:2])
    assert written_offsets(series_table(kept.catalog, load_table(kept.catalog, NAME), {})) == {0: 2}
    assert view_module.HINT_FORM.fullmatch(b"00001-1f") is not None


# Decoded row groups.


def row_groups(source: str) -> float:
    """Row groups that reads took from this source so far."""
    return registry.get_sample_value("tsdb_history_row_groups_total", {"source": source}) or 0.0


def decoded_bytes() -> float:
    return registry.get_sample_value("tsdb_history_decoded_bytes") or 0.0


def filled_in(folder: Path) -> Kept:
    """A table of some emissions, so of many small files."""
    kept = Kept(folder)
    kept.create()
    some = fragments(random_rows(16, packs=2, windows=6, samples=60))
    for first in range(0, len(some), 6):
        kept.put(some[first : first + 6])
    return kept


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """A table that tests only read."""
    found = filled_in(tmp_path_factory.mktemp("unchanged"))
    yield found
    found.catalog.close()


@pytest.mark.slow
@pytest.mark.parametrize("share", [0, 1, 4, 1000])
def test_repeated_reads_are_equal_with_any_size_of_the_cache(unchanged: Kept, share: int) -> None:
    everything = expected(unchanged.given)
    history = unchanged.history(decoded_bytes_max=share * 32 * len(everything))
    choose = np.random.default_rng(16)
    for _ in range(3):
        ids = choose.choice(np.array(unchanged.ids, np.uint64), 5, replace=False).tolist()
        assert read(history, ids) == {key: one for key, one in everything.items() if key[0] in ids}
        assert read(history, unchanged.ids) == everything


def test_a_repeated_read_decodes_nothing(unchanged: Kept) -> None:
    history = unchanged.history()
    first = read(history, unchanged.ids)
    before = row_groups("decoded"), row_groups("cached")
    assert read(history, unchanged.ids) == first
    assert row_groups("decoded") == before[0]
    assert row_groups("cached") > before[1]
    assert decoded_bytes() >= 32 * len(first)
    history.close()
    assert decoded_bytes() == 0


def test_without_a_cache_each_read_decodes(unchanged: Kept) -> None:
    history = unchanged.history(decoded_bytes_max=0)
    read(history, unchanged.ids)
    before = row_groups("decoded"), row_groups("cached")
    read(history, unchanged.ids)
    assert row_groups("decoded") > before[0]
    assert row_groups("cached") == before[1]
    assert decoded_bytes() == 0


def test_a_read_of_more_than_a_quarter_of_the_cache_keeps_nothing(unchanged: Kept) -> None:
    everything = expected(unchanged.given)
    history = unchanged.history(decoded_bytes_max=32 * len(everything) * 4 - 4)
    before = decoded_bytes()
    assert read(history, unchanged.ids) == everything
    assert decoded_bytes() == before == 0
    larger = unchanged.history(decoded_bytes_max=32 * len(everything) * 4)
    assert read(larger, unchanged.ids) == everything
    assert decoded_bytes() > 0
    larger.close()


def test_many_threads_share_decoded_row_groups(unchanged: Kept) -> None:
    history = unchanged.history()
    everything, right = expected(unchanged.given), list[bool]()

    def reader(seed: int) -> None:
        choose = np.random.default_rng(seed)
        for _ in range(4):
            ids = choose.choice(np.array(unchanged.ids, np.uint64), 3, replace=False).tolist()
            right.append(read(history, ids) == {key: one for key, one in everything.items() if key[0] in ids})

    threads = [threading.Thread(target=reader, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 16


@pytest.mark.slow
def test_a_compaction_and_an_expiry_between_reads_change_nothing(tmp_path: Path) -> None:
    kept = filled_in(tmp_path)
    history = kept.history()
    everything = expected(kept.given)
    assert read(history, kept.ids) == everything
    list(compact(kept.catalog, NAME, 2))
    expire(kept.catalog, NAME, datetime.now(UTC) + timedelta(seconds=1))
    assert read(history, kept.ids) == everything
    kept.step()
    assert read(history, kept.ids) == everything
    kept.catalog.close()


@pytest.mark.slow
def test_a_damaged_file_is_corrupt_by_name_beside_decoded_ones(tmp_path: Path) -> None:
    kept = filled_in(tmp_path)
    history = kept.history()
    damaged = kept.current()[-1]
    whole = damaged.read_bytes()
    for _ in range(2):
        damaged.write_bytes(whole[: len(whole) // 2])
        found = refusal(history, kept.ids)
        assert (type(found), found.reason) == (CorruptData, "tables_file_corrupt")
        assert damaged.name in found.message
    damaged.write_bytes(whole)
    for _ in range(2):
        assert read(history, kept.ids) == expected(kept.given)
    kept.catalog.close()
