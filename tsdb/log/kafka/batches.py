"""Consumed messages to record batches, with as few Python steps per record as the client library allows."""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import cast

import numpy as np
from confluent_kafka import Message
from numpy.typing import NDArray

from tsdb.log.interface import KEYLESS, Headers, RecordBatch, TopicPartition
from tsdb.log.joined_bytes import empty, join_bytes

_Pairs = list[tuple[str, bytes | None]]
_TIME_OF = itemgetter(1)  # Takes ms from (kind of timestamp, ms).


def messages_by_partition(messages: list[Message]) -> dict[tuple[str, int], list[Message]]:
    """Messages of each (Kafka topic, partition), in order. Messages come in long runs, so grouping runs is cheap."""
    groups: dict[TopicPartition, list[Message]] = {}
    for topic, of_topic in groupby(messages, Message.topic):
        assert topic is not None, "a consumed message has a topic"
        for partition, run in groupby(of_topic, Message.partition):
            assert partition is not None, "a consumed message has a partition"
            groups.setdefault((topic, partition), []).extend(run)
    return groups


def to_batch(topic: str, partition: int, messages: list[Message]) -> RecordBatch:
    """One partition's messages as a batch. topic: the name without the prefix."""
    count = len(messages)
    values = join_bytes(list(map(Message.value, messages)))
    keys, headers = empty(count), None
    if topic not in KEYLESS:
        keys = join_bytes(list(map(Message.key, messages)))
        headers = _headers(messages)
    broker_ms = np.fromiter(map(_TIME_OF, map(Message.timestamp, messages)), np.int64, count)
    return RecordBatch(
        topic,
        partition,
        values.data,
        values.starts,
        keys.data,
        keys.starts,
        _offsets(messages),
        broker_ms,
        values.nulls,
        headers,
    )


def _headers(messages: list[Message]) -> list[Headers] | None:
    found = list(map(Message.headers, messages))
    if not any(found):
        return None
    # Consumed headers come as a list of pairs; a null header reads as empty.
    return [[(name, value or b"") for name, value in cast(_Pairs, pairs or [])] for pairs in found]


def _offsets(messages: list[Message]) -> NDArray[np.int64]:
    first, last = messages[0].offset(), messages[-1].offset()
    assert first is not None, "a consumed message has an offset"
    assert last is not None, "a consumed message has an offset"
    if last - first == len(messages) - 1:  # Offsets ascend strictly, so no offset is missing in between.
        return np.arange(first, last + 1, dtype=np.int64)
    return np.fromiter(map(Message.offset, messages), np.int64, len(messages))
