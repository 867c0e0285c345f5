"""The result of a select: all samples in flat arrays, with views by series, and conversion to Arrow and pandas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tsdb.client.histogram import Histogram, histograms_of
from tsdb.client.tables import samples_arrow, samples_pandas
from tsdb.model.details import SampleDetails
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import parse_labels
from tsdb.v1 import common_pb2

if TYPE_CHECKING:
    import pandas
    import pyarrow


@dataclass(frozen=True, slots=True)
class Series:
    """One series of a result.

    canonical: labels as one byte string (tsdb.model.labels), b"" for a select without labels. ts_ms: int64 (n,),
    strictly increasing, ms since epoch UTC. values: float64 (n,). Both arrays are views into the result.
    """

    series_id: int
    canonical: bytes
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]

    @property
    def labels(self) -> dict[str, str]:
        """Labels by name, `__name__` included, sorted."""
        return dict(parse_labels(self.canonical))


@dataclass(frozen=True, slots=True, repr=False)
class SelectResult:
    """Series with samples in the range, ordered by partition and series id.

    series_ids: uint64 (s,). canonical: their labels. starts: int64 (s + 1,), series i has samples
    [starts[i], starts[i + 1]) of ts_ms and values. orders: only with `partial`, else None: int64 (n,), offset in the
    log of each sample below coverage, -1 for those above. partitions: state of each partition at the answer. warnings:
    a sentence for each partition that lags so that samples of the range may be missing. details: start timestamps and
    histograms of the samples, None where they have none; the value of a histogram is its sum.
    """

    series_ids: NDArray[np.uint64]
    canonical: Sequence[bytes]
    starts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    orders: NDArray[np.int64] | None
    partitions: Sequence[common_pb2.PartitionState]
    warnings: Sequence[str] = ()
    details: SampleDetails | None = None

    def __repr__(self) -> str:
        return f"SelectResult({len(self.series_ids)} series, {self.samples} samples)"

    @property
    def samples(self) -> int:
        """Number of samples of all series."""
        return len(self.ts_ms)

    @property
    def series(self) -> list[Series]:
        """All series, as views into the result."""
        return [self[index] for index in range(len(self))]

    def __len__(self) -> int:
        return len(self.series_ids)

    def __getitem__(self, index: int) -> Series:
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"series {index} of {len(self)}")
        span = slice(int(self.starts[index]), int(self.starts[index + 1]))
        return Series(int(self.series_ids[index]), self.canonical[index], self.ts_ms[span], self.values[span])

    def __iter__(self) -> Iterator[tuple[dict[str, str], NDArray[np.int64], NDArray[np.float64]]]:
        """(labels, ts_ms, values) of each series."""
        for series in self.series:
            yield series.labels, series.ts_ms, series.values

    def histograms(self, index: int) -> list[Histogram | None]:
        """The native histogram of each sample of one series, None for a number."""
        return histograms_of(self.details, int(self.starts[index]), int(self.starts[index + 1]))

    def to_arrow(self, *, start_times: bool = False) -> pyarrow.Table:
        """One row for each sample: labels (sorted JSON, dictionary-encoded), ts_ms int64, value float64 bit for bit.

        Columns of native histograms and, with start_times, of start timestamps: tsdb.client.tables.samples_arrow.
        """
        self._need_labels()
        columns = (self.canonical, self.starts, self.ts_ms, self.values)
        return samples_arrow(*columns, self.details, start_times=start_times)

    def to_pandas(self, *, start_times: bool = False) -> pandas.DataFrame:
        """One row for each sample: a column for each label, then ts_ms int64 and value float64, bit for bit.

        Columns and errors: tsdb.client.tables.samples_pandas.
        """
        self._need_labels()
        columns = (self.canonical, self.starts, self.ts_ms, self.values)
        return samples_pandas(*columns, self.details, start_times=start_times)

    def _need_labels(self) -> None:
        if any(not canonical for canonical in self.canonical):
            raise InvalidRequest("this select has no labels: select with labels=True", reason="no_labels")
