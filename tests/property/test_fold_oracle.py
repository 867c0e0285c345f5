"""Folds under any order of arrival: history answers as if nothing had ever been folded or deleted.

Chunks arrive in any order, also twice and after a fold covers them; folds are made of whatever is there, arrive in
parts and in any order; rows that a whole fold covers are deleted, and some come back. The remaining rows merge to the
same samples.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from support.oracles.fragment_twin import Samples, fragment_of, merged_twin, samples_of
from tsdb.codec.chunk.chunk import decode_chunk, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.history.fold import fold, redundant, whole_covers
from tsdb.history.interface import ChunkRow
from tsdb.history.merge import merge

WINDOW_MS = 1_000
PART_BYTES_MAX = 700
KINDS = (Kind.BASE, Kind.LATE, Kind.IMPORT)

times = st.tuples(st.integers(0, 3), st.integers(0, 5))
samples = st.dictionaries(times, st.integers(0, 3), min_size=1, max_size=12)
some_chunks = st.lists(samples, min_size=2, max_size=8)


class History:
    """Rows by key, as a store has them, and the chunks still to come."""

    def __init__(self, chunks: list[list[ChunkRow]], rng: random.Random) -> None:
        self.rows: dict[ChunkKey, ChunkRow] = {}
        self.ever: dict[ChunkKey, ChunkRow] = {row.key: row for chunk in chunks for row in chunk}
        self.coming = [row for chunk in chunks for row in chunk]
        self.tick = 1_000
        self._rng = rng

    def arrive(self) -> None:
        """Deliver one row in flight, or one that was delivered before."""
        if self.coming and self._rng.random() < 0.8:
            row = self.coming.pop(self._rng.randrange(len(self.coming)))
        else:
            row = self._rng.choice(list(self.ever.values()))
        self.rows[row.key] = row

    def fold(self) -> None:
        """Fold all rows that have arrived; the parts of the fold are then in flight."""
        if self.rows:
            self.tick += 1
            self.coming += fold(list(self.rows.values()), self.tick, window_ms=WINDOW_MS, part_bytes_max=PART_BYTES_MAX)

    def delete(self) -> None:
        """Delete the rows that a whole fold covers."""
        firsts = [row for key, row in self.rows.items() if key.kind == Kind.FOLDED and key.part == 0]
        for order, cover in whole_covers(self.rows.keys(), firsts).items():
            parts = [row for key, row in self.rows.items() if (key.kind, key.order) == (Kind.FOLDED, order)]
            covered = [self.rows[key] for key in cover.keys if key in self.rows]
            assert redundant(parts, covered), "nothing was written anew under a covered key"
            for row in covered:
                del self.rows[row.key]


def chunks_of(several: Sequence[Samples], rng: random.Random) -> list[list[ChunkRow]]:
    made = []
    for order, part in enumerate(several):
        kind = rng.choice(KINDS)
        values = encode_chunk(fragment_of(part, 7), window_ms=WINDOW_MS, part_bytes_max=PART_BYTES_MAX)
        made.append([ChunkRow(ChunkKey(7, 0, kind, order + 1, at), value) for at, value in enumerate(values)])
    return made


@given(some_chunks, st.integers(0, 2**32))
@settings(max_examples=examples(150))
def test_folds_and_deletions_change_no_answer(given_bits: list[dict[tuple[int, int], int]], seed: int) -> None:
    rng = random.Random(seed)
    # The order of a chunk's samples grows with its number, as offsets do; some samples of a chunk are older.
    several = [
        {key: (max(0, number + 1 - rng.randrange(2)), bits + 10 * number) for key, bits in part.items()}
        for number, part in enumerate(given_bits)
    ]
    history = History(chunks_of(several, rng), rng)
    for _ in range(4 * len(several)):
        rng.choice([history.arrive, history.arrive, history.fold, history.delete])()
    while history.coming:
        history.arrive()
        if rng.random() < 0.5:
            history.delete()
    history.delete()
    left = merge([decode_chunk(row.value) for row in history.rows.values()])
    assert samples_of(left) == merged_twin(several)


@given(some_chunks, st.integers(0, 2**32))
@settings(max_examples=examples(100))
def test_what_arrives_after_a_fold_is_ranked_as_if_it_had_come_before(
    given_bits: list[dict[tuple[int, int], int]], seed: int
) -> None:
    rng = random.Random(seed)
    several = [{key: (number + 1, bits) for key, bits in part.items()} for number, part in enumerate(given_bits)]
    rows = [row for chunk in chunks_of(several, rng) for row in chunk]
    rng.shuffle(rows)
    cut = rng.randrange(1, len(rows))
    folded = fold(rows[:cut], 1_000, window_ms=WINDOW_MS, part_bytes_max=PART_BYTES_MAX)
    after = [decode_chunk(row.value) for row in [*folded, *rows[cut:]]]
    assert samples_of(merge(after)) == merged_twin(several)
