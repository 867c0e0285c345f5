"""KeyDigests: what the log, `chunks` and history have under one key, as digests merged from partial results. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

NOTHING = b""  # Digest of a null record.


@dataclass(frozen=True, slots=True)
class KeyDigests:
    """None in a field: the place does not have the key. partition: partition of the log; history does not know it.

    expected: digest of the record that the log gives. offset, chunk: offset and digest of the last record in `chunks`;
    the digest of a null record is NOTHING. history: digest of the row in history. covered: a folded chunk in `chunks`
    covers this key.

    """

    partition: int | None = None
    expected: bytes | None = None
    offset: int | None = None
    chunk: bytes | None = None
    history: bytes | None = None
    covered: bool = False

    def plus(self, other: KeyDigests) -> KeyDigests:
        """Merge two partial results. Of two records in `chunks` the later one counts."""
        later = self if other.offset is None or (self.offset is not None and self.offset >= other.offset) else other
        return KeyDigests(
            self.partition if other.partition is None else other.partition,
            self.expected if other.expected is None else other.expected,
            later.offset,
            later.chunk,
            self.history if other.history is None else other.history,
            self.covered or other.covered,
        )


def digest(value: bytes) -> bytes:
    """Digest of 16 bytes. Two values with one digest are so unlikely that they are ignored."""
    return xxhash.xxh3_128_digest(value)
