"""Compacted topics that were lost and made anew: restored from a backup, they end as if nothing had happened.

The chunk stage repeats what came after the backup, with the same keys and bytes, and a loader fills an empty history.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.backup.backups import PARTITIONS, Ground, ground
from support.oracles.history_contents import checksum_of_store
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory
from support.servers.pipeline import WINDOW_MS, Pipeline
from tsdb.backup.backup import BackupSource, back_up
from tsdb.backup.checks import read_manifest
from tsdb.backup.folder import BackupFolder
from tsdb.backup.manifest import Manifest
from tsdb.backup.plan import TOPICS
from tsdb.backup.topics import check_restore_topics, restore_topics
from tsdb.chunks.engine import GROUP_ID
from tsdb.codec.chunk.key import ProgressKey, decode_key
from tsdb.history.interface import ChunkStore
from tsdb.history.loader.loader import GROUP
from tsdb.history.shared_settings import shared_rows
from tsdb.log.interface import CHUNKS, META, METADATA, METRICS, SERIES, Log
from tsdb.log.lone_member import lone_member
from tsdb.log.meta import ensure_meta
from tsdb.log.records import read_to_end
from tsdb.log.topics import CREATE_TIME
from tsdb.model.errors import InvalidRequest, Unavailable
from tsdb.model.labels import canonical_labels
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import DEMO

SETTINGS = MetaSettings(partitions=PARTITIONS, time_set=DEMO)
BASE_MS = 1_700_000_010_000 // WINDOW_MS * WINDOW_MS
LABELS = [canonical_labels({"__name__": f"m{at % 3}", "job": "j", "instance": f"i{at}"}) for at in range(12)]
SAVED_MS, END_MS = BASE_MS + WINDOW_MS, BASE_MS + 2 * WINDOW_MS

Records = dict[tuple[int, bytes], bytes | None]


def made_history(histories: HistoryFactory) -> ChunkStore:
    with histories.admin() as admin:
        admin.create(shared_rows(SETTINGS))
    return histories.open()


def run(pipeline: Pipeline, start_ms: int, end_ms: int) -> None:
    """Write samples, emit their windows, load them."""
    due_ms = end_ms + DEMO.grace_ms + DEMO.spread_ms
    for ts_ms in range(start_ms, due_ms, 6_000):
        pipeline.write([(row, ts_ms, float(ts_ms + row)) for row in range(len(LABELS))], ts_ms)
    emit(pipeline, end_ms)
    pipeline.load(end_ms)


def emit(pipeline: Pipeline, end_ms: int) -> None:
    pipeline.clock.set(end_ms + DEMO.grace_ms + DEMO.spread_ms + 1_000)
    with pipeline.chunking(end_ms):
        pass


def records(log: Log, topic: str) -> Records:
    """The latest value of each key, progress markers left out."""
    found: Records = {}
    for number in range(log.partitions(topic)):
        for record in read_to_end(log, topic, number):
            assert record.key is not None
            if topic != CHUNKS or not isinstance(decode_key(record.key), ProgressKey):
                found[number, record.key] = record.value
    return found


def made_anew(logs: LogFactory, log: Log, settings: MetaSettings) -> Log:
    """The log after a loss of all compacted topics, which `tsdb topics create` made anew."""
    log.close()  # The rest of the test writes through another connection.
    for topic in TOPICS:
        logs.recreate(logs.topics(), topic, 1 if topic in (META, METADATA) else PARTITIONS)
    new = logs.open()
    ensure_meta(new, settings)
    return new


def test_topics_made_anew_end_as_if_nothing_had_been_lost(tmp_path: Path) -> None:
    folder = BackupFolder(str(tmp_path / "backup"))
    with (
        LogFactory(f"sqlite:///{tmp_path}/log.db", "") as logs,
        HistoryFactory(f"sqlite:///{tmp_path}/history.db") as histories,
        HistoryFactory(f"sqlite:///{tmp_path}/second.db") as second,
    ):
        logs.create(PARTITIONS, timestamp_type=CREATE_TIME)
        log, store = logs.open(), made_history(histories)
        ensure_meta(log, SETTINGS)
        log.append_sync(META, 0, b"{}", key=b"import/a/1")
        log.append_sync(METADATA, 0, b"{}", key=b"m0", headers=[("h", b"\x00\xff")])
        pipeline = Pipeline(log, store, LABELS, BASE_MS)
        run(pipeline, BASE_MS, SAVED_MS)
        manifest = back_up(folder, BackupSource(log, store, histories.admin(), GROUP), pipeline.clock)
        run(pipeline, SAVED_MS, END_MS)
        before = {topic: records(log, topic) for topic in TOPICS}
        samples = checksum_of_store(store)

        log = made_anew(logs, log, SETTINGS)
        check_restore_topics(manifest, log, TOPICS, GROUP)
        restore_topics(folder, manifest, log, TOPICS, GROUP, lambda size: None)
        assert records(log, META) == before[META]
        assert [record.headers for record in read_to_end(log, METADATA, 0)] == [[("h", b"\x00\xff")]]
        assert records(log, SERIES) == before[SERIES]
        restored = records(log, CHUNKS)
        assert restored.items() < before[CHUNKS].items(), "the chunks of the last window are missing"

        again = Pipeline(log, made_history(second), LABELS, END_MS)
        emit(again, END_MS)
        assert records(log, CHUNKS) == before[CHUNKS]
        again.load(END_MS)
        assert checksum_of_store(again.history) == samples


@pytest.fixture
def saved(tmp_path: Path) -> Iterator[Ground]:
    """A log with a backup in the folder `backup`, whose compacted topics were created anew after it."""
    with ground(f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db") as made:
        made.append_windows()
        made.back_up(tmp_path / "backup")
        made.back_up(tmp_path / "rows", topics=())
        made.log = made_anew(made.logs, made.log, MetaSettings(partitions=PARTITIONS))
        yield made


def manifest_in(folder: Path) -> Manifest:
    return read_manifest(BackupFolder(str(folder)))


def test_a_topic_with_records_is_not_filled(saved: Ground, tmp_path: Path) -> None:
    manifest = manifest_in(tmp_path / "backup")
    check_restore_topics(manifest, saved.log, TOPICS, GROUP)
    saved.log.append_sync(SERIES, 1, b"x", key=b"x")
    with pytest.raises(InvalidRequest, match=r"topic series is not empty \(partition 1\)") as error:
        check_restore_topics(manifest, saved.log, TOPICS, GROUP)
    assert error.value.reason == "topic_not_empty"
    saved.log.append_sync(META, 0, b"{}", key=b"import/b/2")
    with pytest.raises(InvalidRequest, match=r"topic meta is not empty \(import/b/2\)"):
        check_restore_topics(manifest, saved.log, [META], GROUP)


def test_chunks_and_series_go_together(saved: Ground, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="go together") as error:
        check_restore_topics(manifest_in(tmp_path / "backup"), saved.log, [CHUNKS, META], GROUP)
    assert error.value.reason == "topics_together"


@pytest.mark.parametrize(("group", "topic", "role"), [(GROUP, CHUNKS, "loader"), (GROUP_ID, METRICS, "chunk stage")])
def test_topics_are_not_filled_under_a_running_role(
    saved: Ground, tmp_path: Path, group: str, topic: str, role: str
) -> None:
    with lone_member(saved.log, group, [topic]), pytest.raises(Unavailable, match=f"stop every {role} first"):
        check_restore_topics(manifest_in(tmp_path / "backup"), saved.log, TOPICS, GROUP)


def test_a_backup_without_topics_has_none_to_restore(saved: Ground, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="made without topics: chunks, series, meta, metadata") as error:
        check_restore_topics(manifest_in(tmp_path / "rows"), saved.log, TOPICS, GROUP)
    assert error.value.reason == "topics_not_saved"
