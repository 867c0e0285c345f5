"""Seen: what one key of `chunks` is in each of the three places, gathered piece by piece. Pure; digests alone."""

from __future__ import annotations

from dataclasses import dataclass

import xxhash

NOTHING = b""  # Digest of what a null record left.


@dataclass(frozen=True, slots=True)
class Seen:
    """None: not seen there. partition: of the log; unknown to history.

    expected: digest of what the log gives. offset, chunk: of the last record in `chunks`, NOTHING when that is null.
    history: of the row there. covered: a folded chunk in `chunks` names this key among those it covers.
    """

    partition: int | None = None
    expected: bytes | None = None
    offset: int | None = None
    chunk: bytes | None = None
    history: bytes | None = None
    covered: bool = False

    def plus(self, other: Seen) -> Seen:
        """Both together; of records of one key the later stands."""
        later = self if other.offset is None or (self.offset is not None and self.offset >= other.offset) else other
        return Seen(
            self.partition if other.partition is None else other.partition,
            self.expected if other.expected is None else other.expected,
            later.offset,
            later.chunk,
            self.history if other.history is None else other.history,
            self.covered or other.covered,
        )


def digest(value: bytes) -> bytes:
    """16 bytes that no two values share."""
    return xxhash.xxh3_128_digest(value)
