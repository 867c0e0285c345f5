"""Staleness: find the windows of a pack with samples that are newer than its derived series."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tsdb.codec.chunk.chunk import decode_cover
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.history.interface import ChunkStore, WindowRange

Newest = dict[int, int]
"""Highest order of the chunks of a window, by window start; chunks that a fold replaced count too."""


def newest_orders(history: ChunkStore, pack_ids: Iterable[int], windows: WindowRange) -> list[Newest]:
    """Newest orders of each pack. A fold counts with the orders that it covers; a fold of folds counts with its own
    order."""
    return [_newest(history, pack_id, windows) for pack_id in pack_ids]


def stale_windows(source: Newest, derived: Sequence[Newest]) -> list[int]:
    """Start of each window that is newer in the source than in one of the derived packs, ascending.

    The window right after a stale one is stale too: its increases begin from the last samples of the one before.
    """
    stale = {window for window, order in source.items() if any(one.get(window, -1) < order for one in derived)}
    following = {after for before, after in zip(sorted(source), sorted(source)[1:], strict=False) if before in stale}
    return sorted(stale | following)


def _newest(history: ChunkStore, pack_id: int, windows: WindowRange) -> Newest:
    found: Newest = {}
    folds: dict[int, list[ChunkKey]] = {}
    for key, _ in history.windows(pack_id, windows):
        if key.kind == Kind.FOLDED:
            folds.setdefault(key.window_start_ms, []).append(key)
        else:
            # The order of a base is its decision offset, which is above the offset of every sample in it.
            found[key.window_start_ms] = max(found.get(key.window_start_ms, -1), key.order)
    for window in folds:
        found[window] = max(found.get(window, -1), _of_folds(history, pack_id, window))
    return found


def _of_folds(history: ChunkStore, pack_id: int, window: int) -> int:
    newest = -1
    for piece in history.read([pack_id], WindowRange(window, window + 1)):
        for row in piece:
            cover = decode_cover(row.value) if row.key.kind == Kind.FOLDED and row.key.part == 0 else None
            if cover is not None:
                orders = [key.order for key in cover.keys if key.kind != Kind.FOLDED]
                newest = max([newest, *orders] if orders else [newest, row.key.order])
    return newest
