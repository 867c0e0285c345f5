"""Makes the plan of a backup, or finds that of an interrupted one."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from tsdb.backup.files import FILE_BYTES
from tsdb.backup.folder import BackupFolder
from tsdb.backup.manifest import MANIFEST, PLAN, BackupPlan, decode_plan, encode_plan
from tsdb.backup.positions import read_positions
from tsdb.backup.tables import HOLES, SERIES, topic_table
from tsdb.history.claims import HISTORY_REPLACED, ClaimsSnapshot
from tsdb.history.interface import ChunkStore
from tsdb.history.shared_settings import HistoryAdmin, check_history
from tsdb.log.interface import CHUNKS, META, METADATA, METRICS, Log
from tsdb.log.interface import SERIES as SERIES_TOPIC
from tsdb.log.meta import require_meta
from tsdb.model.clock import Clock
from tsdb.model.errors import InvalidRequest, Unavailable

TOKEN_RANGES_MIN = 16  # Parts that an interrupted backup does not repeat.
# Progress markers in `chunks` name an end of `series`, so `series` is read after them.
TOPICS = (CHUNKS, SERIES_TOPIC, META, METADATA)


def begin_plan(
    folder: BackupFolder,
    log: Log,
    store: ChunkStore,
    admin: HistoryAdmin,
    group_id: str,
    topics: Sequence[str],
    clock: Clock,
) -> BackupPlan:
    """The plan of an interrupted backup in the folder, or a new one, written to the folder.

    Raises InvalidRequest (folder_exists) for a folder with other files, and as check_same for an interrupted backup;
    ConfigMismatch when the history is not of this log.
    """
    if folder.has(MANIFEST):
        raise InvalidRequest(f"{folder.name} has a finished backup: give a new folder", reason="folder_exists")
    check_history(admin, require_meta(log))
    if folder.has(PLAN):
        plan = decode_plan(folder.read(PLAN), f"{folder.name}/{PLAN}")
        check_same(f"the backup in {folder.name}", plan, log, store, "give a new folder")
        return plan
    if not folder.is_empty():
        raise InvalidRequest(f"{folder.name} has files of something else: give a new folder", reason="folder_exists")
    plan = new_plan(log, store, admin, group_id, topics, clock)
    folder.put(PLAN, encode_plan(plan))
    return plan


def check_same(work: str, plan: BackupPlan, log: Log, store: ChunkStore, advice: str) -> None:
    """Check that what a plan claims is still there: the same log, and a history that has had all its rows since. work:
    names the work that began with the plan.

    Raises InvalidRequest (other_log, other_topic, history_replaced).
    """
    if plan.topic_ids[METRICS] != log.topic_id(METRICS):
        raise InvalidRequest(
            f"{work} began with the log of topic id {plan.topic_ids[METRICS]}, not with this one,"
            f" {log.topic_id(METRICS)}: {advice}",
            reason="other_log",
        )
    anew = [topic for topic, topic_id in plan.topic_ids.items() if topic_id != log.topic_id(topic)]
    if anew:
        raise InvalidRequest(
            f"topic {anew[0]} was made anew since {work} began: {advice}",
            reason="other_topic",
        )
    try:
        ClaimsSnapshot(plan.topic_ids[METRICS], plan.loaded, plan.anew).check(store)
    except Unavailable as error:
        if error.reason != HISTORY_REPLACED:
            raise
        raise InvalidRequest(
            f"{error.message}: {work} would claim rows that it does not have; {advice}",
            reason=HISTORY_REPLACED,
        ) from error


def new_plan(
    log: Log, store: ChunkStore, admin: HistoryAdmin, group_id: str, topics: Sequence[str], clock: Clock
) -> BackupPlan:
    """A plan of the present state. group_id: the group of the history's loaders."""
    now_ms = clock.now_ms()
    # The order matters: records below a commit were in history before it, and history has all that `loaded` claims.
    positions = read_positions(log, group_id, now_ms)
    standing = ClaimsSnapshot.read(store, log.topic_id(METRICS))
    tokens = store.row_splits(max(TOKEN_RANGES_MIN, store.chunk_bytes() // FILE_BYTES))
    parts = [f"chunks/{number:05d}" for number in range(len(tokens))]
    parts += [f"{SERIES.name}/00000", f"{HOLES.name}/00000"]
    parts += [f"{topic_table(topic).name}/{number:05d}" for topic in topics for number in range(log.partitions(topic))]
    return BackupPlan(
        backup_id=uuid.uuid4().hex,
        created_ms=now_ms,
        topic_ids={topic: log.topic_id(topic) for topic in (METRICS, *TOPICS)},
        partitions=log.partitions(METRICS),
        shared=admin.shared(),
        loaded=standing.loaded,
        positions=positions,
        tokens=tuple(tokens),
        parts=tuple(parts),
        anew=standing.anew,
    )
