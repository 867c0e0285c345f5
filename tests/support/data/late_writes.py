"""Writes of samples a day late, for tests that kill what keeps an Iceberg table, and the table's rows beside them.

The chunk stage makes chunks of late samples each late minute, so kills come in the middle of reads and commits.
"""

from __future__ import annotations

import random
import struct
import time

import numpy as np
import pyarrow as pa

from tsdb.history.iceberg.catalog import TableSettings, load_table, open_catalog
from tsdb.history.iceberg.state import table_state

SERIES, SAMPLES = 20, 30
DAY_MS = 86_400_000

Batch = list[tuple[dict[str, str], list[int], list[float]]]  # Labels, times in ms and values of each series.


class LateWrites:
    """Seeded batches at random times of a span of ten minutes; each has some known times with another value."""

    def __init__(self, seed: int) -> None:
        self.generator = random.Random(seed)
        self._first_ms = time.time_ns() // 1_000_000 - DAY_MS
        self._written: dict[tuple[str, int], float] = {}

    def batch(self) -> Batch:
        """The next batch. The caller writes it, and its write is accepted."""
        found: Batch = []
        for number in range(SERIES):
            times = range(self._first_ms, self._first_ms + 600_000, 1_000)
            ts_ms = sorted(self.generator.sample(times, SAMPLES))
            values = [self.generator.random() for _ in ts_ms]
            found.append(({"__name__": f"killed_{number % 3}", "id": str(number)}, ts_ms, values))
            self._written.update({(str(number), at): value for at, value in zip(ts_ms, values, strict=True)})
        return found

    def wanted(self) -> dict[tuple[str, int], bytes]:
        """The newest value of each written sample, by series and time."""
        return {key: struct.pack("<d", value) for key, value in self._written.items()}


def rows(settings: TableSettings) -> dict[tuple[str, int], bytes]:
    """The table's rows, as `LateWrites.wanted`. Asserts that each (series, timestamp) is there once."""
    with open_catalog(settings) as catalog:
        found = load_table(catalog, settings.name).scan().to_arrow()
    ids = [dict(labels)["id"] for labels in found["labels"].to_pylist()]
    ts_ms = (found["ts"].cast(pa.int64()).to_numpy() // 1000).tolist()
    values = np.asarray(found["value"].to_numpy(), "<f8")
    keys = list(zip(ids, ts_ms, strict=True))
    assert len(set(keys)) == len(keys), "a (series, timestamp) is there twice"
    return {key: value.tobytes() for key, value in zip(keys, values, strict=True)}


def commits(settings: TableSettings) -> int:
    """Number of the table's emissions."""
    with open_catalog(settings) as catalog:
        state = table_state(load_table(catalog, settings.name))
    return 0 if state is None else state.emission
