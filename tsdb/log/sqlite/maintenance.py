"""Maintenance of an embedded log: drops by time, compacts by key, and returns freed pages.

It runs in steps, each in a separate transaction, so that no append waits long. Retention drops from the front, as
Kafka does with whole segments; compaction leaves gaps and never takes the last record of a lane.
"""

from __future__ import annotations

import sqlite3

from tsdb.log.sqlite.database import ERRORS, OFFSET_MAX, Lane, find_lanes, first_at
from tsdb.log.sqlite.values import drop_unused
from tsdb.ops.metrics import counter
from tsdb.sqlite.database import transaction

STEP_RECORDS = 2_000
VACUUM_PAGES = 512
# The default of Kafka's delete.retention.ms. Readers that lag must see the deletion.
NULL_RECORDS_KEPT_MS = 24 * 3600 * 1000

trimmed_records_total = counter("tsdb_log_trimmed_records_total", "Records that an embedded log's retention dropped.")
compacted_records_total = counter(
    "tsdb_log_compacted_records_total", "Records that an embedded log dropped for a newer one of their key."
)


def maintain(connection: sqlite3.Connection, now_ms: int) -> None:
    """Maintain every topic once. Raises Unavailable."""
    with ERRORS.translate("maintenance"):
        topics = [row[0] for row in connection.execute("SELECT topic FROM topics")]
    for topic in topics:
        with ERRORS.translate("maintenance"):
            lanes = find_lanes(connection, topic).values()
        for lane in lanes:
            policy = lane.setting("cleanup.policy") or "delete"
            if "delete" in policy:
                _trim_to_retention(connection, lane, now_ms)
            if "compact" in policy:
                _compact(connection, lane, now_ms)
    with ERRORS.translate("maintenance"):
        connection.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()


def trim(connection: sqlite3.Connection, lane: Lane, low_offset: int) -> None:
    """Drop every record below low_offset, which becomes the low watermark."""
    end_id = lane.first_id + min(low_offset, lane.next_offset)
    while True:
        with transaction(connection, ERRORS, "retention", write=True):
            gone = connection.execute(
                "DELETE FROM records WHERE id IN (SELECT id FROM records WHERE id >= ? AND id < ? ORDER BY id LIMIT ?)",
                (lane.first_id, end_id, STEP_RECORDS),
            ).rowcount
            left = connection.execute(
                "SELECT min(id) FROM records WHERE id >= ? AND id < ?", (lane.first_id, end_id)
            ).fetchone()[0]
            low_id = end_id if left is None else left
            connection.execute(
                "UPDATE lanes SET low_offset = max(low_offset, ?) WHERE lane = ?", (low_id & OFFSET_MAX, lane.number)
            )
            drop_unused(connection, lane, low_id)
        trimmed_records_total.inc(gone)
        if left is None:
            return


def _trim_to_retention(connection: sqlite3.Connection, lane: Lane, now_ms: int) -> None:
    retention_ms = int(lane.setting("retention.ms") or -1)
    if retention_ms < 0 or lane.low_offset == lane.next_offset:
        return
    with ERRORS.translate("retention"):
        keep = first_at(connection, lane, now_ms - retention_ms)
        low_offset = lane.next_offset if keep is None else keep
        # If compaction left only a gap at the front, there is no record to drop, and the low watermark stays.
        old = connection.execute(
            "SELECT 1 FROM records WHERE id >= ? AND id < ? LIMIT 1", (lane.first_id, lane.first_id + low_offset)
        ).fetchone()
    if old is not None:
        trim(connection, lane, low_offset)


def _compact(connection: sqlite3.Connection, lane: Lane, now_ms: int) -> None:
    lag_ms = int(lane.setting("min.compaction.lag.ms") or 0)
    bounds = (lane.first_id, lane.end_id)
    with transaction(connection, ERRORS, "compaction", write=True):
        # A record is dropped when a later one has its key, or when it is null and old; both only past the lag.
        superseded = connection.execute(
            "DELETE FROM records WHERE id IN ("
            " SELECT id FROM (SELECT id, broker_ms, lead(id) OVER (PARTITION BY key ORDER BY id) AS newer"
            " FROM records WHERE id >= ? AND id < ? AND key IS NOT NULL)"
            " WHERE newer IS NOT NULL AND broker_ms < ?)",
            (*bounds, now_ms - lag_ms),
        ).rowcount
        nulls = connection.execute(
            "DELETE FROM records WHERE id >= ? AND id < ? AND value IS NULL AND broker_ms < ?"
            " AND id < (SELECT max(id) FROM records WHERE id < ?)",
            (*bounds, now_ms - max(lag_ms, NULL_RECORDS_KEPT_MS), lane.end_id),
        ).rowcount
    compacted_records_total.inc(superseded + nulls)
