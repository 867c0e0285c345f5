"""Selection: reads the series of one query of remote read, in the order of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tsdb.model.labels import SEPARATOR
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.v1 import remote_read_pb2


@dataclass(frozen=True, slots=True)
class SelectedSeries:
    """samples: the samples of the series as a part of the arrays, at least one."""

    labels: list[remote_read_pb2.Label]
    samples: slice


def selection(stored: StoredSeries) -> Iterator[SelectedSeries]:
    """Series that have samples, label by label in the order of names: Prometheus joins such streams by that order."""
    parts = [one.split(SEPARATOR) for one in stored.labels]
    starts = stored.starts.tolist()
    for index in sorted(range(len(parts)), key=parts.__getitem__):
        samples = slice(starts[index], starts[index + 1])
        if samples.start < samples.stop:
            pairs = zip(parts[index][::2], parts[index][1::2], strict=True)
            yield SelectedSeries([remote_read_pb2.Label(name=name, value=value) for name, value in pairs], samples)
