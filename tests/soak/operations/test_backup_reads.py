"""Attacks the promise that a restored history answers every read: the keyspace is dropped between windows.

The recording of a real host, with late and repeated samples, over a real broker and a real Cassandra node. Every answer
is compared with what was written, before the loss, after it and at the end; and with the bytes of before.
"""

from __future__ import annotations

import random
import uuid
from pathlib import Path

import numpy as np
import pytest

from stack.cassandra import NodeAccess
from support.backup.backup_drill import drop
from support.data import recordings
from support.drills.history_drill import HistoryDrill
from support.oracles.history_contents import checksum_of_store
from support.oracles.history_oracle import EVERYTHING
from support.servers.histories import META, HistoryFactory
from support.servers.logs import LogFactory
from support.servers.queriers import Context
from support.servers.way import Way
from support.shared_servers import SharedBroker
from tsdb.backup.backup import BackupSource, back_up
from tsdb.backup.checks import check_files
from tsdb.backup.folder import BackupFolder
from tsdb.backup.restore import RestoreTarget, check_restore, restore_progress, restore_rows
from tsdb.client import ReadOptions
from tsdb.history.loader.loader import GROUP
from tsdb.log.meta import ensure_meta
from tsdb.log.topics import CREATE_TIME
from tsdb.model.errors import TsdbError
from tsdb.promql.evaluate.query import range_query
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.query.promql.storage import QuerierStorage
from tsdb.reader.read_call import ReadCalls, SelectLimits

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

PARTITIONS, WINDOWS = 3, 10
PROMQL = (
    "last_over_time(node_scrape_collector_duration_seconds[1m])",
    "sum by (job) (rate(node_scrape_collector_duration_seconds[1m]))",
    "quantile(0.9, max_over_time(node_scrape_collector_success[1m]))",
)
SAVED, LOADED = slice(0, 4), slice(4, 6)


def test_every_read_after_a_restore_is_as_if_nothing_had_been_lost(
    kafka: SharedBroker, cassandra: NodeAccess, tmp_path: Path
) -> None:
    history = f"cassandra://{cassandra.host}:{cassandra.port}/reads_{uuid.uuid4().hex[:8]}"
    recording, rng = recordings.node(WINDOWS, every=16), random.Random(71)
    ends, folder = recording.window_ends, BackupFolder(str(tmp_path / "backup"))
    with (
        LogFactory(f"kafka://{kafka.bootstrap}", f"t{uuid.uuid4().hex[:12]}.") as logs,
        HistoryFactory(history) as histories,
    ):
        logs.create(PARTITIONS, timestamp_type=CREATE_TIME)
        log = logs.open()
        ensure_meta(log, META)
        histories.create()
        with Way(log, histories.open(), recording, seed=72) as way, HistoryDrill(way, rng) as drill:
            drill.run(ends[SAVED], outage=(), random_reads=1)
            drill.write_late(drill.healthy, "late, before the backup")
            manifest = back_up(folder, BackupSource(log, way.history, histories.admin(), GROUP), way.clock)
            drill.run(ends[LOADED], outage=(), random_reads=1)
            drill.write_late(drill.healthy, "late, after the backup")
            way.load()
            held, before = checksum_of_store(way.history), payload(drill, ends)
            drop(history)
            with pytest.raises(TsdbError):
                payload(drill, ends)
            histories.create()
            target = RestoreTarget(way.history, histories.admin(), log, logs.topics(), GROUP)
            check_restore(manifest, target, way.clock.now_ms(), from_zero=False)
            check_files(folder, manifest.files, lambda size: None)
            restore_rows(folder, manifest, way.history, way.clock, lambda size: None)
            restore_progress(manifest, target, way.clock)
            assert checksum_of_store(way.history) != held, "what came after the backup is missing"
            way.load()
            assert (checksum_of_store(way.history), payload(drill, ends)) == (held, before)
            drill.run(ends[LOADED.stop :], outage=(), random_reads=1)
            drill.read_evicted(ends, random_reads=40)
            drill.read_late(drill.healthy, "late, gone from memory")
            print(f"\n{manifest.rows('chunks')} chunks in the backup\n{drill.healthy.summary()}")
            assert drill.healthy.share() == 1.0
            assert way.dead_letters() == 0


def payload(drill: HistoryDrill, ends: list[int]) -> tuple[bytes, ...]:
    """Answers of all series in the windows until the loss, as bytes: RAW samples, and PROMQL."""
    start_ms, end_ms = 2 * ends[0] - ends[1], ends[LOADED.stop - 1]
    answer = drill.querier.client.select(EVERYTHING, start_ms, end_ms)
    raw = b"\n".join(answer.canonical), answer.starts.tobytes(), answer.ts_ms.tobytes(), answer.values.tobytes()
    return *raw, *(found for text in PROMQL for found in promql(drill, text, start_ms, end_ms))


def promql(drill: HistoryDrill, text: str, start_ms: int, end_ms: int) -> tuple[bytes, bytes]:
    """Values and presence of a range query with 50 steps."""
    step_ms = (end_ms - start_ms) // 50
    with ReadCalls().of(Context()) as call:
        storage = QuerierStorage(drill.querier.sources, SelectLimits(), call, ReadOptions())
        value = range_query(text, storage, start_ms + step_ms, end_ms - 1, step_ms).value
    assert isinstance(value, Block)
    assert value.present.any()
    return np.where(value.present, value.values, 0.0).tobytes(), value.present.tobytes()
