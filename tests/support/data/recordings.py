"""Recordings: real data as it would reach the log, with all that senders do to it.

Fresh scrapes, samples held back for seconds, windows or days, the same timestamp again with another value, twice in one
record, times long before the first, times as far ahead as readers take and a millisecond further. Seeded.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from support.data.tables import NODE_5S
from tsdb.model.labels import canonical_labels
from tsdb.model.time_set import DEMO, PRODUCTION, TimeSet

CLOUD_1M = Path(__file__).parents[4] / "shared" / "data" / "cloud_1m.parquet"
SOURCES = 7  # Instances among which the series of the one real host are divided, so that all partitions have some.
ODD_VALUES = (0x7FF8_0000_0000_BEEF, 0x7FF0_0000_0000_0002, 0x8000_0000_0000_0000, 0xFFF0_0000_0000_0000)

Sample = tuple[int, int, float]  # (row, ts_ms, value)


@dataclass(frozen=True, slots=True)
class Batch:
    """Samples that reach the log at one broker time, in order."""

    broker_ms: int
    samples: list[Sample]


@dataclass(frozen=True, slots=True)
class Recording:
    """labels: canonical, by row. ts_ms: int64 (t,), ascending. values: float64 (rows, t). there: bool, where one is."""

    times: TimeSet
    labels: list[bytes]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    there: NDArray[np.bool_]

    @property
    def window_ends(self) -> list[int]:
        """Ends of the windows that the recording fills, but for its last scrapes."""
        window_ms = self.times.window_ms
        first = int(self.ts_ms[0]) // window_ms + 1
        last = (int(self.ts_ms[-1]) - self.times.grace_ms - self.times.spread_ms) // window_ms
        return [number * window_ms for number in range(first, last + 1)]

    def batches(self, seed: int) -> Iterator[Batch]:
        """In the order of the log; broker times ascend, but for steps back of some milliseconds."""
        rng, tie = random.Random(seed), itertools.count()
        later: list[tuple[int, int, Sample]] = []
        for at, ts in enumerate(self.ts_ms.tolist()):
            while later and later[0][0] <= ts:
                yield _due(later, rng)
            broker_ms = ts + rng.randrange(200)
            fresh = [(row, ts, float(self.values[row, at])) for row in np.flatnonzero(self.there[:, at]).tolist()]
            samples: list[Sample] = []
            for sample in fresh:
                for delay_ms, one in self._sent(sample, broker_ms, rng):
                    if delay_ms:
                        heapq.heappush(later, (broker_ms + delay_ms, next(tie), one))
                    else:
                        samples.append(one)
            yield Batch(broker_ms, samples)
        while later:
            yield _due(later, rng)

    def _sent(self, sample: Sample, broker_ms: int, rng: random.Random) -> Iterator[tuple[int, Sample]]:
        """(delay in ms, sample) of the writes made from one sample: at once, late, with another value, too old."""
        row, ts, value = sample
        chance = rng.random()
        if chance < 0.02:
            yield self._delay_ms(rng), sample
            return
        yield 0, sample
        if chance < 0.04:
            yield self._delay_ms(rng), (row, ts, value + 1.0)
        elif chance < 0.05:
            yield 0, (row, ts, _odd(rng))
        elif chance < 0.06:
            yield 0, (row, ts - rng.randrange(self.times.accept_past_ms - 2 * self.times.window_ms), value)
        elif chance < 0.065:
            yield 0, (row, broker_ms + self.times.ahead_ms, value)
            yield 0, (row, broker_ms + self.times.ahead_ms + 1, value)

    def _delay_ms(self, rng: random.Random) -> int:
        """A random delay, from less than the grace to many windows."""
        return 1 + rng.randrange(rng.choice([self.times.grace_ms, self.times.window_ms, 8 * self.times.window_ms]))


def node(windows: int, every: int) -> Recording:
    """Every n-th series of a real host (n: `every`) with the demo time set."""
    return _read(NODE_5S, DEMO, windows, every, sources=SOURCES)


def long_node(windows: int, every: int) -> Recording:
    """The data of `node`, slowed down to windows of the production time set."""
    demo = node(windows, every)
    slower = PRODUCTION.window_ms // DEMO.window_ms
    first_ms = int(demo.ts_ms[0])
    return dataclasses.replace(demo, times=PRODUCTION, ts_ms=first_ms + (demo.ts_ms - first_ms) * slower)


def cloud(windows: int, *, every_minutes: int) -> Recording:
    """Production series in windows of 4 hours. Only where CLOUD_1M is found."""
    return _read(CLOUD_1M, PRODUCTION, windows, 1, grid=every_minutes)


def _read(path: Path, times: TimeSet, windows: int, every: int, *, grid: int = 1, sources: int = 0) -> Recording:
    table = pq.read_table(path)
    names = table["labels"].to_pylist()
    chosen = sorted(set(names))[::every]
    ts = table["ts_ms"].to_numpy()
    axis = np.unique(ts)
    axis = axis[axis < axis[0] + (windows + 1) * times.window_ms][::grid]
    row_of = {name: row for row, name in enumerate(chosen)}
    row = np.fromiter((row_of.get(name, -1) for name in names), np.int64, len(names))
    mine = np.flatnonzero((row >= 0) & np.isin(ts, axis))
    at = np.searchsorted(axis, ts[mine])
    values, there = np.zeros((len(chosen), len(axis))), np.zeros((len(chosen), len(axis)), np.bool_)
    values[row[mine], at] = table["value"].to_numpy()[mine]
    there[row[mine], at] = True
    return Recording(times, [_labels(name, row, sources) for row, name in enumerate(chosen)], axis, values, there)


def _labels(name: str, row: int, sources: int) -> bytes:
    labels = json.loads(name)
    if sources:
        labels["instance"] = f"{row % sources}.{labels['instance']}"
    return canonical_labels(labels)


def _due(later: list[tuple[int, int, Sample]], rng: random.Random) -> Batch:
    """All that is due within the same moment, some of it a little back in time."""
    broker_ms, _, sample = heapq.heappop(later)
    samples = [sample]
    while later and later[0][0] <= broker_ms + 100 and len(samples) < 50:
        samples.append(heapq.heappop(later)[2])
    return Batch(broker_ms - rng.randrange(50), samples)


def _odd(rng: random.Random) -> float:
    return float(np.array([rng.choice(ODD_VALUES)], np.uint64).view(np.float64)[0])
