"""Converts Kafka messages to records, or to columns that are built on access."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tsdb.parallel_consumer.columns import RecordColumns
from tsdb.parallel_consumer.record import Record, TopicPartition


def runs_by_partition(messages: list[Any]) -> Iterator[tuple[TopicPartition, list[Any]]]:
    """Ranges of consecutive messages of one partition: topic and partition are then read from one message per range."""
    partitions = [message.partition() for message in messages]
    topics = [message.topic() for message in messages]
    start = 0
    for end in range(1, len(messages) + 1):
        if end == len(messages) or partitions[end] != partitions[start] or topics[end] != topics[start]:
            yield (topics[start], partitions[start]), messages[start:end]
            start = end


def records_of(topic_partition: TopicPartition, messages: list[Any]) -> list[Record]:
    """Messages of one partition as records."""
    topic, partition = topic_partition
    new = tuple.__new__  # The class calls it too. Calling it directly saves a third of the time.
    return [
        new(
            Record,
            (
                topic,
                partition,
                message.offset(),
                message.key(),
                message.value(),
                message.timestamp()[1],
                message.headers() or (),
            ),
        )
        for message in messages
    ]


def message_columns(topic_partition: TopicPartition, messages: list[Any]) -> RecordColumns:
    """Messages of one partition as columns."""
    offsets = np.array([message.offset() for message in messages], np.int64)
    return RecordColumns(*topic_partition, offsets, messages, _field)


def _field(messages: Sequence[Any], name: str) -> list[Any]:
    match name:
        case "key":
            return [message.key() for message in messages]
        case "value":
            return [message.value() for message in messages]
        case "headers":
            return [message.headers() or () for message in messages]
        case "timestamp_ms":
            return [message.timestamp()[1] for message in messages]
        case _:
            assert name == "size", f"no column {name}"
            return list(map(len, messages))
