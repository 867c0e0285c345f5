"""Rules of merge-late: what is folded, kept and deleted, and what a later run continues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_backfill.jobs.merge_late.job import MergeLateOptions, merge_late
from spark_backfill.jobs.merge_late.plan import Rule, plan_packs
from spark_backfill.jobs.merge_late.read_backs import ReadBacks
from spark_backfill.jobs.merge_late.work import NOT_REDUNDANT, fold_windows
from spark_backfill.packs import PackSpan
from spark_backfill.result import MergeLatePlan, MergeLateResult
from spark_backfill.worker_log import close_worker_log
from support.data.late_storm import EVER, LateStorm, assert_reads, fragments_left
from support.servers.histories import META, WINDOW_MS, HistoryFactory, write_rows
from support.servers.loaders import is_loaded
from support.servers.logs import LogFactory, wait_until
from support.spark.local_session import local_session
from support.spark.storm_pair import Loading, StormPair
from tsdb.codec.chunk.key import ChunkKey, Kind, decode_key
from tsdb.history.interface import ChunkRow
from tsdb.log.interface import CHUNKS, LogRecord
from tsdb.model.errors import Unavailable

NOW = MergeLateOptions(apply=True, fragments_max=1, delete_after_ms=0, loader_timeout_ms=120_000, tasks=8)
HOUR_MS = 3600 * 1000


def run_job(pair: StormPair, options: MergeLateOptions = NOW) -> MergeLateResult:
    done = merge_late(local_session(), pair.places, META, options)
    assert isinstance(done, MergeLateResult)
    return done


def plan_of_job(pair: StormPair, options: MergeLateOptions) -> MergeLatePlan:
    plan = merge_late(local_session(), pair.places, META, options)
    assert isinstance(plan, MergeLatePlan)
    return plan


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[StormPair]:
    with (
        LogFactory(f"sqlite:///{tmp_path}/log.db", "") as log,
        HistoryFactory(f"sqlite:///{tmp_path}/history.db") as history,
    ):
        history.create()
        yield StormPair(log, history)
        close_worker_log()


def test_a_history_loaded_anew_from_chunks_answers_the_same(embedded: StormPair, tmp_path: Path) -> None:
    embedded.filled()
    with embedded.loading():
        run_job(embedded)
        run_job(embedded)
    with HistoryFactory(f"sqlite:///{tmp_path}/anew.db") as factory:
        factory.create()
        anew = factory.open()
        with Loading(embedded.log, anew):
            end = sum(1 for _ in embedded.chunk_records())
            assert end
            wait_until(lambda: fragments_left(anew, embedded.storm.partition) == embedded.left())
        assert_reads(anew, embedded.storm.wanted)


def test_without_apply_the_plan_is_reported_and_no_record_is_written(embedded: StormPair) -> None:
    embedded.filled()
    before = len(embedded.chunk_records())
    plan = plan_of_job(embedded, MergeLateOptions(fragments_max=1, tasks=8))
    assert plan.to_fold == plan.chunks == len(embedded.storm.parts)
    assert plan.per_chunk == 11.0
    assert len(plan.rows) == len(set(embedded.storm.partition.values()))
    assert len(embedded.chunk_records()) == before


def test_few_fragments_are_left_until_they_are_old(embedded: StormPair) -> None:
    embedded.filled()
    few = MergeLateOptions(fragments_max=11, older_than_ms=1 << 52, tasks=8)
    assert plan_of_job(embedded, few).to_fold == 0
    old = MergeLateOptions(fragments_max=11, older_than_ms=HOUR_MS, tasks=8)
    assert plan_of_job(embedded, old).to_fold == len(embedded.storm.parts)


def test_only_windows_of_the_range_are_checked(embedded: StormPair) -> None:
    embedded.filled()
    first_ms = min(window for _, window in embedded.storm.parts)
    one = MergeLateOptions(fragments_max=1, start_ms=first_ms + 1, end_ms=first_ms + WINDOW_MS, tasks=8)
    assert plan_of_job(embedded, one).chunks == embedded.storm.packs


def test_rows_stay_until_the_delay_after_they_were_read_back(embedded: StormPair) -> None:
    embedded.filled()
    later = MergeLateOptions(apply=True, fragments_max=1, loader_timeout_ms=120_000, tasks=8)
    with embedded.loading():
        run_job(embedded, later)
        second = run_job(embedded, later)
    assert (second.folded, second.rows_deleted) == (0, 0)
    assert {len(fragments) for fragments in embedded.left().values()} == {12}
    assert_reads(embedded.history, embedded.storm.wanted)


def test_samples_after_a_fold_keep_their_order_and_are_folded_next(embedded: StormPair) -> None:
    embedded.filled()
    with embedded.loading():
        run_job(embedded)
        # A sample with a lower order than the folded samples. It wins only where there is no other sample.
        embedded.storm.write_late(embedded.log, 150)
        embedded.storm.write_late(embedded.log, 5_000)
        wait_until(lambda: is_loaded(embedded.log))
        assert_reads(embedded.history, embedded.storm.wanted)
        second = run_job(embedded)
        assert_reads(embedded.history, embedded.storm.wanted)
        third = run_job(embedded)
    assert second.folded == len(embedded.storm.parts)
    assert third.folded == 0
    assert {len(fragments) for fragments in embedded.left().values()} == {1}
    assert_reads(embedded.history, embedded.storm.wanted)


def test_a_covered_chunk_that_comes_again_is_harmless_and_goes_again(embedded: StormPair) -> None:
    embedded.filled()
    records = embedded.chunk_records()
    with embedded.loading():
        run_job(embedded)
        run_job(embedded)
        for record in records[:20]:
            partition = embedded.storm.partition[_chunk_key(record).pack_id]
            embedded.log.append_sync(CHUNKS, partition, record.value, key=record.key)
        wait_until(lambda: is_loaded(embedded.log))
        assert_reads(embedded.history, embedded.storm.wanted)
        run_job(embedded)
    assert {len(fragments) for fragments in embedded.left().values()} == {1}
    assert_reads(embedded.history, embedded.storm.wanted)


def test_a_covered_key_with_something_else_in_it_is_not_deleted(embedded: StormPair) -> None:
    embedded.filled()
    with embedded.loading():
        run_job(embedded)
        row = _late_row(embedded)
        other = LateStorm(packs=1, windows=1, late=0, seed=7, partitions=META.partitions)
        other.partition, other.parts = embedded.storm.partition, {}
        other._send(embedded.log, (row.key.pack_id, row.key.window_start_ms), Kind.LATE, row.key.order, _fresh(row))
        wait_until(lambda: is_loaded(embedded.log))
        told = run_job(embedded)
    assert told.ok is False
    assert told.refused == {NOT_REDUNDANT: 1}
    assert (row.key.kind, row.key.order) in embedded.left()[row.key.pack_id, row.key.window_start_ms]


def test_a_corrupt_row_is_left_alone_and_the_others_are_folded(embedded: StormPair) -> None:
    embedded.filled()
    row = _late_row(embedded)
    write_rows(embedded.history, [ChunkRow(row.key, row.value[:-1] + bytes([row.value[-1] ^ 1]))])
    with embedded.loading():
        told = run_job(embedded)
    assert told.ok is False
    assert told.refused == {"corrupt_chunk": 1}
    assert told.folded == len(embedded.storm.parts) - 1


def test_without_a_loader_a_run_fails_and_a_later_one_continues(embedded: StormPair) -> None:
    embedded.filled()
    impatient = MergeLateOptions(apply=True, fragments_max=1, delete_after_ms=0, loader_timeout_ms=500, tasks=8)
    with pytest.raises(Unavailable, match="did not load all of it") as refused:
        run_job(embedded, impatient)
    assert refused.value.reason == "loader_behind"
    assert ReadBacks.read(embedded.log).at_ms == {}, "what was not read back is not noted"
    with embedded.loading():
        second = run_job(embedded)
        third = run_job(embedded)
    assert (second.folded, second.rows_deleted) == (0, 0)
    assert third.rows_deleted == 11 * len(embedded.storm.parts)
    assert_reads(embedded.history, embedded.storm.wanted)


def test_a_task_that_runs_twice_writes_the_same_keys_and_bytes(embedded: StormPair) -> None:
    embedded.filled()
    rule = Rule(EVER, WINDOW_MS, META.part_bytes_max, 1, 0)
    packs = [PackSpan(pack, partition, 0, 1 << 50) for pack, partition in embedded.storm.partition.items()]
    plans = list(plan_packs(embedded.places, rule, packs))
    orders = dict.fromkeys(range(META.partitions), 9_999)
    for _ in range(2):
        list(fold_windows(embedded.places, rule, orders, plans))
    written = [record for record in embedded.chunk_records() if _chunk_key(record).kind == Kind.FOLDED]
    assert len(written) == 2 * len({record.key for record in written}) == 2 * len(plans)
    assert len({(record.key, record.value) for record in written}) == len(plans)


def _chunk_key(record: LogRecord) -> ChunkKey:
    key = decode_key(record.key or b"")
    assert isinstance(key, ChunkKey)
    return key


def _late_row(pair: StormPair) -> ChunkRow:
    rows = (row for piece in pair.history.read(list(pair.storm.partition), EVER) for row in piece)
    return next(row for row in rows if row.key.kind == Kind.LATE)


def _fresh(row: ChunkRow) -> dict[tuple[int, int], tuple[int, int]]:
    """A sample at a time without another one."""
    return {(1, row.key.window_start_ms + 1): (row.key.order, 0)}
