"""Fills a topic of orders in a broker in memory by a seed, and lists the records that its commits mark as finished."""

from __future__ import annotations

import random

from tsdb.parallel_consumer import TopicPartition
from tsdb.parallel_consumer.offsets.metadata import decode_metadata
from tsdb.parallel_consumer.testing import MemoryBroker, Protocol

TOPIC = "orders"
PARTITIONS = 3

Done = tuple[TopicPartition, int]  # Topic, partition and offset of a record.


def filled(seed: int, records: int, keys: int, protocol: Protocol = Protocol.COOPERATIVE) -> MemoryBroker:
    """A broker with numbered records of `keys` keys, some without a key, with gaps in the offsets."""
    source = random.Random(seed)
    broker = MemoryBroker(PARTITIONS, TOPIC, protocol=protocol)
    for number in range(records):
        key = None if source.random() < 0.1 else b"k%d" % source.randrange(keys)
        gap = source.choice([0, 0, 0, 1, 7])
        broker.append(TOPIC, source.randrange(PARTITIONS), b"%d" % number, key=key, gap=gap)
    return broker


def everything(broker: MemoryBroker) -> set[Done]:
    """All records of the broker."""
    return {
        (topic_partition, record.offset) for topic_partition, records in broker.records.items() for record in records
    }


def covered(broker: MemoryBroker) -> set[Done]:
    """Records that the stored commits mark as finished."""
    found = set()
    for topic_partition, commit in broker.commits.items():
        runs = decode_metadata(
            commit.next_offset, commit.metadata, broker.topic_ids[topic_partition[0]]
        ).finished.tolist()
        for record in broker.records[topic_partition]:
            if record.offset < commit.next_offset or any(start <= record.offset < end for start, end in runs):
                found.add((topic_partition, record.offset))
    return found
