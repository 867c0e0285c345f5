"""Fold: merges all rows of a (pack, window) into one chunk that names the covered rows, and checks which rows may be
deleted. Pure.

A fold keeps each sample's order, so later rows rank as if nothing had been folded. Covered rows are harmless: merged
again they change nothing. So rows are deleted only to save space. Before the deletion `redundant` checks their bytes,
because a row may have been written again under its key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from tsdb.codec.chunk.chunk import PART_BYTES_MIN, SAMPLES_MAX, Fragment, decode_chunk, decode_cover, encode_chunk
from tsdb.codec.chunk.cover import COVERED_KEYS_MAX, KEY_BYTES_MAX, Cover, add_cover, cover_bytes_max
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.history.interface import ChunkRow
from tsdb.history.merge import merge
from tsdb.model.details import same_details
from tsdb.model.errors import CorruptData, InvalidRequest, UnknownVersion

FRAGMENT_SAMPLES_MAX = 4 * SAMPLES_MAX  # Samples and bucket counts in memory at one time: 200 MB.

Covers = Mapping[int, Cover]
"""Cover of each whole fold, by the fold's order."""


def fragments_of(keys: Iterable[ChunkKey]) -> set[tuple[Kind, int]]:
    """The (kind, order) of the fragments to which these rows of one (pack, window) belong."""
    return {(key.kind, key.order) for key in keys}


def whole_covers(keys: Collection[ChunkKey], first_parts: Iterable[ChunkRow]) -> dict[int, Cover]:
    """Covers of the complete folds, whose parts are all among the keys. first_parts: rows of kind FOLDED and part 0.

    Raises CorruptData (corrupt_chunk, wrong_chunk), UnknownVersion.
    """
    found: dict[int, Cover] = {}
    for row in first_parts:
        cover, key = decode_cover(row.value), row.key
        if cover is None:
            continue
        parts = sum(one.kind == Kind.FOLDED and one.order == key.order for one in keys)
        if parts >= cover.parts:
            found[key.order] = cover
    return found


def standing(keys: Collection[ChunkKey], covers: Covers) -> set[ChunkKey]:
    """The rows that no whole fold covers."""
    return set(keys).difference(*(cover.keys for cover in covers.values()))


def foldable(keys: Iterable[ChunkKey], part_bytes_max: int) -> tuple[ChunkKey, ...]:
    """The keys that one fold can cover, lowest (order, kind, part) first. The next fold takes the rest."""
    capacity = (part_bytes_max - PART_BYTES_MIN - cover_bytes_max(0)) // KEY_BYTES_MAX
    return tuple(sorted(keys, key=lambda key: (key.order, key.kind, key.part))[: min(COVERED_KEYS_MAX, capacity)])


def fold(rows: Sequence[ChunkRow], order: int, *, window_ms: int, part_bytes_max: int) -> list[ChunkRow]:
    """The parts of one chunk that covers all of these rows of one (pack, window), of different keys.

    order: order of the fold's key, above that of each row of kind FOLDED: the offset of a tick appended for the fold.
    The same rows give the same bytes. Raises CorruptData (corrupt_chunk, wrong_chunk), UnknownVersion,
    InvalidRequest (fold_too_large).
    """
    keys = [row.key for row in rows]
    place = keys[0].pack_id, keys[0].window_start_ms
    assert all(key.kind != Kind.FOLDED or key.order < order for key in keys), f"a fold of order {order} or above"
    capacity = part_bytes_max - cover_bytes_max(len(keys))
    if len(keys) > COVERED_KEYS_MAX or capacity < PART_BYTES_MIN:
        raise InvalidRequest(
            f"{len(keys)} chunks of pack {place[0]:016x} in window {place[1]}; a fold covers up to {COVERED_KEYS_MAX},"
            f" and their keys must fit a part of {part_bytes_max} bytes",
            reason="fold_too_large",
        )
    parts = encode_chunk(merge(list(_fragments(rows))), window_ms=window_ms, part_bytes_max=capacity)
    values = [add_cover(parts[0], Cover.of(len(parts), keys)), *parts[1:]]
    return [ChunkRow(ChunkKey(*place, Kind.FOLDED, order, part), value) for part, value in enumerate(values)]


def redundant(fold_rows: Sequence[ChunkRow], covered: Sequence[ChunkRow]) -> bool:
    """Whether the covered rows, merged into the fold, change nothing. Raises as `fold`."""
    folded = merge(list(_fragments(fold_rows)))
    return _same(merge([folded, *_fragments(covered)]), folded)


def decoded_row(row: ChunkRow) -> Fragment:
    """The fragment of a row. Raises CorruptData (corrupt_chunk, wrong_chunk), UnknownVersion."""
    fragment, key = decode_chunk(row.value), row.key
    if (fragment.pack_id, fragment.window_start_ms) != (key.pack_id, key.window_start_ms):
        raise CorruptData(
            f"chunk of pack {fragment.pack_id:016x}, window {fragment.window_start_ms} under the key of pack"
            f" {key.pack_id:016x}, window {key.window_start_ms}",
            reason="wrong_chunk",
        )
    return fragment


def is_sound(row: ChunkRow) -> bool:
    """Whether a row decodes, and is a chunk of its key."""
    try:
        decoded_row(row)
    except (CorruptData, UnknownVersion):
        return False
    return True


def _fragments(rows: Iterable[ChunkRow]) -> Iterable[Fragment]:
    """Decoded fragments. Raises InvalidRequest (fold_too_large) above FRAGMENT_SAMPLES_MAX."""
    samples = 0
    for row in rows:
        fragment, key = decoded_row(row), row.key
        samples += fragment.samples + fragment.bucket_counts
        if samples > FRAGMENT_SAMPLES_MAX:
            raise InvalidRequest(
                f"chunks of pack {key.pack_id:016x} in window {key.window_start_ms} hold over {FRAGMENT_SAMPLES_MAX}"
                " samples and bucket counts, which is the most that a fold takes",
                reason="fold_too_large",
            )
        yield fragment


def _same(one: Fragment, other: Fragment) -> bool:
    pairs = (
        (one.series_id, other.series_id),
        (one.sample_start, other.sample_start),
        (one.ts_ms, other.ts_ms),
        (one.value.view(np.int64), other.value.view(np.int64)),
        (one.order, other.order),
    )
    return all(np.array_equal(left, right) for left, right in pairs) and same_details(one.details, other.details)
