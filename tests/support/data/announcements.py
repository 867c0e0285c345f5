"""Announcements as the head gets them: decoded columns, the bytes that their label positions refer to, broker times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.records.series_record import DecodedAnnouncements, decode_announcements, encode_announcement
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.placement import PlacementRule

Labels = Mapping[str, str]
Batch = tuple[DecodedAnnouncements, bytes, NDArray[np.int64]]


def announced(labels: Sequence[Labels], *, broker_ms: int = 0) -> Batch:
    """A batch that announces these series."""
    return announced_raw([(series_id(text), text) for text in map(canonical_labels, labels)], broker_ms=broker_ms)


def announced_raw(series: Sequence[tuple[int, bytes]], *, broker_ms: int = 0) -> Batch:
    """A batch of (series id, labels as they stand), whatever they are."""
    records = [encode_announcement(number, 0, _pack_id(text), text) for number, text in series]
    keys, values = (b"".join(record[side] for record in records) for side in (0, 1))
    key_starts, value_starts = (np.cumsum([0, *(len(record[side]) for record in records)]) for side in (0, 1))
    decoded = decode_announcements(keys, key_starts, values, value_starts)
    return decoded, values, np.full(len(records), broker_ms, np.int64)


def _pack_id(text: bytes) -> int:
    return PlacementRule().place(text).pack_id if text.count(b"\xff") % 2 else 0


def joined(pairs: Sequence[tuple[bytes, bytes]], *, broker_ms: int = 0) -> Batch:
    """A batch of encoded announcements."""
    keys, values = (b"".join(pair[side] for pair in pairs) for side in (0, 1))
    key_starts, value_starts = (np.cumsum([0, *(len(pair[side]) for pair in pairs)]) for side in (0, 1))
    decoded = decode_announcements(keys, key_starts, values, value_starts)
    return decoded, values, np.full(len(pairs), broker_ms, np.int64)
