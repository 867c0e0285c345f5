"""Chunk records of random samples, as a chunk stage would have emitted them: base, late, written again, folded."""

from __future__ import annotations

import random
from collections.abc import Iterator

from support.oracles.fragment_twin import Samples, fragment_of, merged_twin
from support.servers.histories import WINDOW_MS
from tsdb.codec.chunk.chunk import encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.history.interface import ChunkRow


def random_rows(seed: int, *, packs: int = 6, windows: int = 4, samples: int = 200) -> list[ChunkRow]:
    """Records in the order of a topic; some come twice."""
    generator = random.Random(seed)
    rows: list[ChunkRow] = []
    for pack in range(packs):
        for window in range(windows):
            rows += _of_window(generator, generator.randrange(1 << 64) ^ pack, window * WINDOW_MS, samples)
    rows += generator.sample(rows, len(rows) // 4)
    return rows


def _of_window(generator: random.Random, pack_id: int, window_start_ms: int, samples: int) -> Iterator[ChunkRow]:
    series = [generator.randrange(1 << 64) for _ in range(5)]
    base = _samples(generator, series, window_start_ms, samples, 99)
    late = [_samples(generator, series, window_start_ms, 10, 100 + 10 * at) for at in range(3)]
    pieces = [(Kind.BASE, 100, base), *((Kind.LATE, 100 + 10 * at, one) for at, one in enumerate(late))]
    if generator.random() < 0.5:
        pieces.append((Kind.FOLDED, 500, merged_twin([base, *late])))
    for kind, order, piece in pieces:
        fragment = fragment_of(piece, pack_id, window_start_ms)
        parts = encode_chunk(fragment, window_ms=WINDOW_MS, part_bytes_max=1024)
        for part, value in enumerate(parts):
            yield ChunkRow(ChunkKey(pack_id, window_start_ms, kind, order, part), value)


def _samples(generator: random.Random, series: list[int], start_ms: int, count: int, order: int) -> Samples:
    return {
        (generator.choice(series), start_ms + 60_000 * generator.randrange(240)): (order, generator.randrange(1 << 63))
        for _ in range(count)
    }
