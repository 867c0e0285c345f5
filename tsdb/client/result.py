"""The result of a select: all samples in flat arrays, with views by series, and conversion to Arrow and pandas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

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

    def to_arrow(self) -> pyarrow.Table:
        """One row for each sample: labels (sorted JSON, dictionary-encoded), ts_ms int64, value float64 bit for bit."""
        self._need_table()
        return samples_arrow(self.canonical, self.starts, self.ts_ms, self.values)

    def to_pandas(self) -> pandas.DataFrame:
        """One row for each sample: a column for each label, then ts_ms int64 and value float64, bit for bit.

        Columns and errors: tsdb.client.tables.samples_pandas.
        """
        self._need_table()
        return samples_pandas(self.canonical, self.starts, self.ts_ms, self.values)

    def check_floats(self, where: str) -> None:
        """Raises InvalidRequest (native_histograms) where a sample is a native histogram. where: what shows numbers
        alone."""
        if self.details is not None and self.details.histograms is not None:
            raise InvalidRequest(
                f"the selected series have native histograms, and {where} shows numbers alone: select other series, use"
                " the details of the result, or send a query with histogram_quantile() or histogram_count()",
                reason="native_histograms",
            )

    def _need_table(self) -> None:
        self.check_floats("a table")
        if any(not canonical for canonical in self.canonical):
            raise InvalidRequest("this select has no labels: select with labels=True", reason="no_labels")
