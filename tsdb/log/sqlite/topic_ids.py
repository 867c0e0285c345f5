"""Compares the current incarnation of a topic with the expected one."""

from __future__ import annotations

from collections.abc import Mapping

from tsdb.log.checks import check_partition, wrong_topic
from tsdb.log.sqlite.database import Lane


def check_lane(topic: str, topic_id: str, partition: int, lanes: Mapping[int, Lane]) -> Lane:
    """The lane of a partition. lanes: the current lanes. Raises WrongTopic (topic_deleted, topic_recreated) and
    InvalidRequest (unknown_partition)."""
    now_id = next(iter(lanes.values())).topic_id if lanes else None
    if now_id != topic_id:
        raise wrong_topic(topic, topic_id, now_id)
    check_partition(topic, partition, len(lanes))
    return lanes[partition]
