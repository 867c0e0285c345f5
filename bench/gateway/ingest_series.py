"""Series to send, and the walk over them: the workload's samples in the order in which a fleet of sources sends them.

The walk goes through all series at one time, then through all series at the next time. A request is the next n samples
of the walk. Its samples have the time at which their pass began, so that they are never late and never ahead.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from bench.workload import Workload
from tsdb.model.labels import canonical_labels

NODE_DATA = Path(__file__).parents[2] / "tests" / "data" / "node_5s.parquet"
NODE_HOSTS = 10  # Copies of the host's series, each with an instance of its name.
VALUES_MAX = 8_000_000  # Values in memory; a longer walk repeats them.
PASS_MS_LEAST = 5  # Time between two passes, so that a series never has two samples at one time.


@dataclass(frozen=True, slots=True)
class SentSeries:
    """labels: the labels of each series, name 0xFF value 0xFF ... values: float64 (series, columns).

    times_ms: int64 (columns,), the samples' own times; None: the time at which they are sent.
    """

    labels: list[bytes]
    values: NDArray[np.float64]
    times_ms: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class WorkloadRequest:
    """The rows of a request in order: series i has the samples [starts[i], starts[i + 1]).

    window: equal for requests with the same rows and the same counts. rows, starts, ts_ms: int64; values: float64.

    """

    window: tuple[int, int]
    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]


def synthetic(series: int) -> SentSeries:
    """W(S) of bench/workload.py, with repeated values where it is large."""
    workload = Workload(series, 1, samples=max(2, min(240, VALUES_MAX // series)))
    return SentSeries(workload.labels, workload.values)


def node_data(hosts: int = NODE_HOSTS) -> SentSeries:
    """A host's own metrics every 5 s, as `hosts` hosts; their samples are sent as they come."""
    labels, values, _ = _node_columns()
    found = []
    for host in range(hosts):
        found += [canonical_labels({**one, "instance": f"host-{host}:9100"}) for one in labels]
    return SentSeries(found, np.tile(values, (hosts, 1)))


def node_data_once() -> SentSeries:
    """The host's metrics with their own intervals. The newest sample has the present time."""
    labels, values, times_ms = _node_columns()
    shifted = times_ms + (int(time.time() * 1000) - int(times_ms[-1]))
    return SentSeries([canonical_labels(one) for one in labels], values, shifted)


class Walk:
    """Position of one sender in its walk over the series. Not thread-safe."""

    def __init__(self, series: SentSeries) -> None:
        self._series = series
        self._position = 0
        self._pass = -1
        self._pass_ms = 0

    @property
    def position(self) -> int:
        """Samples of the walk so far."""
        return self._position

    def next(self, samples: int) -> WorkloadRequest:
        """The next `samples` samples."""
        count = len(self._series.labels)
        first = self._position % count
        places = np.arange(self._position, self._position + samples)
        self._position += samples
        rows, columns = places % count, places // count
        if samples > count:  # The walk meets a series more than once, so its samples go together.
            order = np.argsort(rows, kind="stable")
            rows, columns = rows[order], columns[order]
        edges = np.flatnonzero(np.diff(rows, prepend=-1))
        starts = np.append(edges, samples)
        values = self._series.values[rows, columns % self._series.values.shape[1]]
        return WorkloadRequest((first, samples), rows[edges], starts, self._times(columns), values)

    def _times(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        if self._series.times_ms is not None:
            return self._series.times_ms[columns % len(self._series.times_ms)]
        first, last = int(columns.min()), int(columns.max())
        times = np.array([self._time_of(column) for column in range(first, last + 1)], np.int64)
        found: NDArray[np.int64] = times[columns - first]
        return found

    def _time_of(self, column: int) -> int:
        """Time of the running pass, or of the one after it, which begins now."""
        if column > self._pass:
            self._pass, self._pass_ms = column, max(int(time.time() * 1000), self._pass_ms + PASS_MS_LEAST)
        return self._pass_ms


def _node_columns() -> tuple[list[dict[str, str]], NDArray[np.float64], NDArray[np.int64]]:
    """Labels, values (series, times) and times. Every series has a sample at every time."""
    table = pq.read_table(NODE_DATA)
    coded = table["labels"].combine_chunks()
    times_ms, which_time = np.unique(table["ts_ms"].to_numpy(), return_inverse=True)
    labels = coded.dictionary.to_pylist()
    values = np.full((len(labels), len(times_ms)), np.nan)
    values[coded.indices.to_numpy(), which_time] = table["value"].to_numpy()
    return [json.loads(text) for text in labels], values, times_ms
