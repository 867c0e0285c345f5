"""Tombstones of a block: deleted intervals of series whose samples are still in the chunks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from spark_backfill.jobs.imports.prometheus.cursor import ByteCursor
from tsdb.model.errors import UnknownVersion

MAGIC, VERSION = 0x0130_BA30, 1
HEADER_BYTES, CRC_BYTES = 5, 4

Tombstones = Mapping[int, Sequence[tuple[int, int]]]
"""Intervals [first_ms, last_ms] by number of the series, both ends included."""


def read_tombstones(data: memoryview, name: str) -> Tombstones:
    """Parse a `tombstones` file. Raises CorruptData (corrupt_block), UnknownVersion."""
    head = ByteCursor(data, name, 0, min(HEADER_BYTES, len(data)))
    if head.u32() != MAGIC:
        raise head.corrupt("no tombstones of Prometheus")
    version = head.take(1)[0]
    if version != VERSION:
        raise UnknownVersion(f"{name}: tombstones are of version {version}; this process knows {VERSION}")
    body = ByteCursor(data, name, HEADER_BYTES, len(data)).section(max(len(data) - HEADER_BYTES - CRC_BYTES, 0))
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    while body.at < body.end:
        found[body.uvarint()].append((body.varint(), body.varint()))
    return dict(found)


def alive(ts_ms: NDArray[np.int64], deleted: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Mask of the samples outside all deleted intervals, bool (n,)."""
    kept = np.ones(len(ts_ms), np.bool_)
    for first_ms, last_ms in deleted:
        kept &= (ts_ms < first_ms) | (ts_ms > last_ms)
    return kept
