"""What is consumed and what is committed. Partitions are named by (topic, partition)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

Partition = tuple[str, int]  # (topic, partition)
KEY_BYTES_SHOWN = 64

Headers = Sequence[tuple[str, bytes]]


class Record(NamedTuple):
    """One consumed record. timestamp_ms: as the source has it, ms since epoch UTC. A null record has value None.

    A tuple, for there is one a record: a frozen dataclass takes four times as long to make.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 0
    headers: Headers = ()

    @property
    def place(self) -> Partition:
        """Its partition."""
        return self.topic, self.partition

    @property
    def size(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True)
class Position:
    """A commit: everything below next_offset is finished; `metadata` tells what is finished above it."""

    next_offset: int
    metadata: str = ""


def key_text(key: bytes | None) -> str:
    """A key for a log line."""
    return "no key" if key is None else f"key {key[:KEY_BYTES_SHOWN]!r}"


def place_text(place: Partition) -> str:
    """A partition for a log line."""
    return f"{place[0]}/{place[1]}"
