"""The memory that a head accounts for against what it takes: no attack grows a head beside its limits.

Measured with tracemalloc, which sees every numpy array and Python object, but not the C memory of postings' bitmaps.
The accounting estimates the bitmaps, so it may only be above the measurement.
"""

from __future__ import annotations

import gc
import random
import tracemalloc

import numpy as np
import pytest

from support.data.heads import Record, apply, new_head
from tsdb.codec.records.series_record import decode_announcements, encode_announcement
from tsdb.head.head import Head
from tsdb.head.state import HeadLimits
from tsdb.model.labels import canonical_labels, series_id

MISSED_MAX_PART = 0.10  # The largest part of the measured memory that the accounting may miss.
OVERSTATED_MAX_PART = 1.0  # Unused capacity of arrays counts as memory.
BASE_BYTES = 256 << 10  # Objects of an empty head.


def announce(head: Head, count: int, label_bytes: int, shared: float, rng: random.Random) -> list[int]:
    """Announce series with `label_bytes` bytes of labels, a part of them shared by all. Returns their ids."""
    ids = []
    for first in range(0, count, 500):
        pairs = []
        for number in range(first, min(count, first + 500)):
            own = rng.randbytes(max(4, int(label_bytes * (1 - shared)) // 2)).hex()
            labels = canonical_labels(
                {"__name__": f"m{number % 7}", "job": "j", "a": "s" * int(label_bytes * shared), "b": own}
            )
            ids.append(series_id(labels))
            pairs.append(encode_announcement(ids[-1], 0, number % 5, labels))
        keys, values = [key for key, _ in pairs], [value for _, value in pairs]
        joined = b"".join(values)
        starts = [np.cumsum([0, *map(len, parts)], dtype=np.int64) for parts in (keys, values)]
        head.register(
            decode_announcements(b"".join(keys), starts[0], joined, starts[1]), joined, np.full(len(keys), 1 << 60)
        )
    return ids


def exercised(rng: random.Random, count: int, label_bytes: int, shared: float) -> Head:
    """A head with series, samples in open and sealed slices, and late ones."""
    head = new_head(hold_ms=1 << 40, series=200, limits=HeadLimits(ring_samples_max=20_000))
    announce(head, count, label_bytes, shared, rng)
    for offset in range(rng.randrange(20, 60)):
        broker_ms = 1000 + 7 * offset
        ts_ms = broker_ms - rng.choice([0, 0, 0, 500])
        apply(head, [Record(offset, broker_ms, tuple((n, ts_ms, rng.random()) for n in range(200)))])
        head.maintain()
    return head


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_what_a_head_accounts_for_is_what_it_takes(seed: int) -> None:
    rng = random.Random(seed)
    exercised(random.Random(0), 100, 100, 0.5)  # Kernels and modules are loaded once, by the first head.
    count, label_bytes = rng.choice([(1_000, 2_000), (4_000, 300), (2_500, 1_000)])
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        head = exercised(rng, count, label_bytes, rng.choice([0.0, 0.5, 0.9]))
        gc.collect()
        measured = tracemalloc.get_traced_memory()[0] - before
        accounted = head.sizes().bytes
    finally:
        tracemalloc.stop()
    assert measured * (1 - MISSED_MAX_PART) - BASE_BYTES <= accounted <= measured * (1 + OVERSTATED_MAX_PART), (
        f"{accounted} bytes accounted for, {measured} taken"
    )
