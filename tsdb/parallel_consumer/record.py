"""Records and commit positions. A partition is identified by (topic, partition)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

TopicPartition = tuple[str, int]
KEY_BYTES_SHOWN = 64

Headers = Sequence[tuple[str, bytes]]


class Record(NamedTuple):
    """One consumed record. timestamp_ms: as given by the source, ms since epoch UTC. A null record has value None.

    A tuple, because one is made for every record: a frozen dataclass takes four times as long to make.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 0
    headers: Headers = ()

    @property
    def topic_partition(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class Position:
    """A commit: all records below next_offset are finished; `metadata` encodes the finished offsets above it."""

    next_offset: int
    metadata: str = ""


def key_text(key: bytes | None) -> str:
    return "no key" if key is None else f"key {key[:KEY_BYTES_SHOWN]!r}"


def topic_partition_text(topic_partition: TopicPartition) -> str:
    return f"{topic_partition[0]}/{topic_partition[1]}"
