"""Lanes of an embedded log: the check of a topic's incarnation, and the lookup by time within one lane.

Broker times may step back; their running maximum (latest_ms) does not.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

from tsdb.log.checks import check_partition, wrong_topic
from tsdb.log.sqlite.database import OFFSET_MAX, Lane


def check_lane(topic: str, topic_id: str, partition: int, lanes: Mapping[int, Lane]) -> Lane:
    """The lane of a partition. lanes: the current lanes. Raises WrongTopic (topic_deleted, topic_recreated) and
    InvalidRequest (unknown_partition)."""
    now_id = next(iter(lanes.values())).topic_id if lanes else None
    if now_id != topic_id:
        raise wrong_topic(topic, topic_id, now_id)
    check_partition(topic, partition, len(lanes))
    return lanes[partition]


def first_at(connection: sqlite3.Connection, lane: Lane, ms: int) -> int | None:
    """First offset with broker time >= ms, or None. A bisection over latest_ms, which rises with the offset."""
    low, high = lane.low_offset, lane.next_offset
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(
            "SELECT id, latest_ms FROM records WHERE id >= ? AND id < ? ORDER BY id LIMIT 1",
            (lane.first_id + middle, lane.first_id + high),
        ).fetchone()
        if row is None or row[1] >= ms:
            high = middle
        else:
            low = (row[0] & OFFSET_MAX) + 1
    # A trim may have removed the record that raised the maximum: search for the first record that has the time itself.
    found = connection.execute(
        "SELECT id FROM records WHERE id >= ? AND id < ? AND broker_ms >= ? ORDER BY id LIMIT 1",
        (lane.first_id + low, lane.end_id, ms),
    ).fetchone()
    return None if found is None else int(found[0]) & OFFSET_MAX
