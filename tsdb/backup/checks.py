"""Checks of a restore: everything that refuses it is found before anything is changed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from tsdb.backup.folder import BackupFolder
from tsdb.backup.manifest import MANIFEST, BackupFile, BackupPlan, Manifest, decode_manifest
from tsdb.history.interface import ChunkStore
from tsdb.history.shared_settings import HINT, HistoryAdmin
from tsdb.log.interface import CHUNKS, METRICS, SERIES, Log
from tsdb.log.topics import TopicAdmin
from tsdb.model.errors import ConfigMismatch, CorruptData, InvalidRequest

FROM_ZERO = "--from-zero restores the rows, and lets the loader read both topics from their first record"
EVER_MS = 1 << 62


def read_manifest(folder: BackupFolder) -> Manifest:
    """Raises InvalidRequest (no_manifest), CorruptData (bad_manifest), UnknownVersion (newer_backup)."""
    if not folder.has(MANIFEST):
        raise InvalidRequest(
            f"{folder.name} has no {MANIFEST}: it is no backup, or one that did not end; `tsdb history backup` with the"
            " same folder finishes it",
            reason="no_manifest",
        )
    return decode_manifest(folder.read(MANIFEST), f"{folder.name}/{MANIFEST}")


def check_files(folder: BackupFolder, files: Sequence[BackupFile], advance: Callable[[int], None]) -> None:
    """Read every file. Raises CorruptData (missing_file, damaged_file). advance: bytes."""
    for file in files:
        size = folder.size(file.name)
        if size is None:
            raise CorruptData(f"{folder.name}/{file.name} is missing: use another backup", reason="missing_file")
        if size != file.bytes:
            raise _damaged(folder, file, f"it has {size} bytes, the manifest {file.bytes}")
        digest = hashlib.sha256()
        for piece in folder.pieces(file.name):
            digest.update(piece)
            advance(len(piece))
        if digest.hexdigest() != file.sha256:
            raise _damaged(folder, file, f"its SHA-256 is {digest.hexdigest()}, in the manifest {file.sha256}")


def check_log(manifest: Manifest, log: Log) -> None:
    """Raises InvalidRequest (other_log)."""
    want, got = manifest.plan.topic_ids[METRICS], log.topic_id(METRICS)
    if want != got:
        raise InvalidRequest(
            f"the backup is of the log with topic id {want}; this log has {got}: give its own log, or --detached to"
            " restore the rows for an export",
            reason="other_log",
            want=want,
            got=got,
        )


def check_settings(manifest: Manifest, admin: HistoryAdmin) -> None:
    """Raises ConfigMismatch (history_schema) unless the tables are there, made for the settings of the backup."""
    found = admin.differences()
    if not found:
        stored = admin.shared()
        found = [
            f"{name}: the backup has {value}, history was made with {stored.get(name, 'none')}"
            for name, value in manifest.plan.shared.items()
            if stored.get(name) != value
        ]
    if found:
        raise ConfigMismatch(f"history is not as it must be: {'; '.join(found)}", reason="history_schema")


def check_empty(topic_id: str, store: ChunkStore) -> None:
    """Raises InvalidRequest (history_not_empty). topic_id: the id of the log whose `loaded` must not be there."""
    has_chunks = any(piece for split in store.row_splits(1) for piece in store.scan(split))
    rows = {
        "chunks": has_chunks,
        "series": bool(store.epochs()),
        "loaded": bool(store.loaded(topic_id)),
        "holes": bool(store.holes(None, -EVER_MS, EVER_MS)),
    }
    full = [table for table, found in rows.items() if found]
    if full:
        raise InvalidRequest(
            f"history is not empty: it has rows of {', '.join(full)}; use a new keyspace or file: {HINT}",
            reason="history_not_empty",
        )


def check_continuation(plan: BackupPlan, log: Log, topics: TopicAdmin, now_ms: int) -> None:
    """Raises InvalidRequest (backup_too_old, other_topic) when a loader cannot go on where the backup ends.

    Records that compaction removed since then were repeated later, so `loaded` would be true only at the end of the
    topics. Compaction leaves a record alone for min.compaction.lag.ms.
    """
    for topic in (CHUNKS, SERIES):
        if plan.topic_ids[topic] != log.topic_id(topic):
            raise InvalidRequest(f"topic {topic} was made anew since the backup: {FROM_ZERO}", reason="other_topic")
        marks = log.watermarks(topic, sorted(plan.loaded))
        for number in plan.loaded:
            position = getattr(plan.positions[number], topic)
            if position is not None and position.next_offset < marks[number].low:
                raise InvalidRequest(
                    f"the backup ends at offset {position.next_offset} of topic {topic}, partition {number}, which now"
                    f" begins at {marks[number].low}: {FROM_ZERO} and name the lost part as a hole",
                    reason="backup_too_old",
                )
    state = topics.describe(CHUNKS)
    lag_ms = int(state.config.get("min.compaction.lag.ms", 0)) if state else 0
    since_ms = min((plan.positions[number].since_ms for number in plan.loaded), default=now_ms)
    if now_ms - since_ms > lag_ms:
        raise InvalidRequest(
            f"the backup ends {(now_ms - since_ms) / 3_600_000:.1f} h ago; topic {CHUNKS} keeps every record for only"
            f" {lag_ms / 3_600_000:.1f} h (min.compaction.lag.ms): {FROM_ZERO}",
            reason="backup_too_old",
        )


def _damaged(folder: BackupFolder, file: BackupFile, why: str) -> CorruptData:
    return CorruptData(f"{folder.name}/{file.name} is damaged: {why}; use another backup", reason="damaged_file")
