"""W(S): makes the workload of the benchmarks, as columns and as log records.

S series x 240 samples at 60 s: 40 % integer counters, 30 % gauges with 2 decimals, 20 % full-precision noise, 10 %
constant; 6 labels; 100 series an instance, 5 series a pack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.records.log_record import encode_record
from tsdb.codec.records.series_record import encode_announcement
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.window import index_epoch

SAMPLES = 240
INTERVAL_MS = 60_000
SERIES_PER_INSTANCE = 100
SERIES_PER_PACK = 5
RECORD_SAMPLES_MAX = 60_000  # A record of this size stays below the log record's 1 MiB with a shared timestamp.


@dataclass(frozen=True, slots=True)
class PartitionShare:
    """Series of one partition, in pack order. rows: int64, indexes into the workload's series."""

    partition: int
    rows: NDArray[np.int64]
    series_ids: NDArray[np.uint64]
    pack_ids: NDArray[np.uint64]
    pack_lengths: NDArray[np.uint32]

    def part(self, number: int, parts: int) -> PartitionShare | None:
        """Series of part `number`, when the packs are divided equally among `parts` parts. None for a part without
        packs."""
        first, last = (len(self.pack_ids) * edge // parts for edge in (number, number + 1))
        if first == last:
            return None
        ends = np.cumsum(self.pack_lengths.astype(np.int64))
        rows = slice(int(ends[first - 1]) if first else 0, int(ends[last - 1]))
        return PartitionShare(
            self.partition,
            self.rows[rows],
            self.series_ids[rows],
            self.pack_ids[first:last],
            self.pack_lengths[first:last],
        )


class Workload:
    """labels: canonical labels of each series. values: float64 (S, samples). Series i of an instance is metric i."""

    def __init__(
        self, series: int, partitions: int, *, samples: int = SAMPLES, job: str = "bench", seed: int = 1
    ) -> None:
        self.labels = [_labels(job, number) for number in range(series)]
        self.series_ids = np.array([series_id(labels) for labels in self.labels], np.uint64)
        self.values = _values(series, samples, np.random.default_rng(seed))
        places = [PlacementRule().place(labels) for labels in self.labels]
        self.pack_ids = np.array([place.pack_id for place in places], np.uint64)
        self.partitions = np.array([partition_of(place.placement, partitions) for place in places])
        self.shares = [self._share(partition) for partition in range(partitions)]

    def record(self, share: PartitionShare, ts_ms: int, column: int, record_samples: int = 0) -> Iterator[bytes]:
        """The records of one scrape of a partition: all its series at ts_ms, values of `column`.

        record_samples: most samples in a record, except for one pack that has more; 0: as few records as possible.
        """
        ends = np.cumsum(share.pack_lengths.astype(np.int64))
        first, limit = 0, record_samples or RECORD_SAMPLES_MAX
        while first < len(ends):
            start = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(np.searchsorted(ends, start + limit, side="right")))
            rows = slice(start, int(ends[last - 1]))
            ids = share.series_ids[rows]
            values = self.values[share.rows[rows], column % self.values.shape[1]]
            times = np.full(len(ids), ts_ms, np.int64)
            yield encode_record(share.pack_ids[first:last], share.pack_lengths[first:last], ids, times, values)
            first = last

    def announcements(self, share: PartitionShare, ts_ms: int) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of the `series` record of each series of a partition."""
        for row in share.rows.tolist():
            number = int(self.series_ids[row])
            yield encode_announcement(number, index_epoch(number, ts_ms), int(self.pack_ids[row]), self.labels[row])

    def _share(self, partition: int) -> PartitionShare:
        rows = np.flatnonzero(self.partitions == partition)
        rows = rows[np.lexsort((self.series_ids[rows], self.pack_ids[rows]))]
        pack_ids, lengths = np.unique(self.pack_ids[rows], return_counts=True)
        return PartitionShare(partition, rows, self.series_ids[rows], pack_ids, lengths.astype(np.uint32))


def _labels(job: str, number: int) -> bytes:
    instance, metric = divmod(number, SERIES_PER_INSTANCE)
    family, mode = divmod(metric, SERIES_PER_PACK)
    return canonical_labels(
        {
            "__name__": f"bench_metric_{family:02d}",
            "job": job,
            "instance": f"host-{instance:05d}:9100",
            "mode": f"mode_{mode}",
            "zone": f"zone-{instance % 3}",
            "cluster": "main",
        }
    )


def _values(series: int, samples: int, random: np.random.Generator) -> NDArray[np.float64]:
    values = np.empty((series, samples))
    kinds = random.permutation(series) % 10
    counters, gauges = np.flatnonzero(kinds < 4), np.flatnonzero((kinds >= 4) & (kinds < 7))
    noise, constant = np.flatnonzero((kinds >= 7) & (kinds < 9)), np.flatnonzero(kinds == 9)
    rates = random.integers(1, 5_000, (len(counters), 1))
    values[counters] = random.integers(0, 10**9, (len(counters), 1)) + np.cumsum(
        random.poisson(rates, (len(counters), samples)), axis=1
    )
    walk = np.cumsum(random.normal(0, 0.5, (len(gauges), samples)), axis=1)
    values[gauges] = np.round(random.uniform(0, 100, (len(gauges), 1)) + walk, 2)
    values[noise] = random.normal(0, 1, (len(noise), samples)) * random.uniform(1, 100, (len(noise), 1))
    values[constant] = random.integers(0, 100, (len(constant), 1))
    return values
