"""Rows of samples: Arrow batches of a task as columns, in pieces that the gateway's pipeline takes as one request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ingest.limits import IngestLimits
from ingest.rows import Rows, make_rows
from spark_backfill.source.columns import LABELS, TS, VALUE
from spark_backfill.source.rows import US_PER_MS
from spark_backfill.writing.label_column import joined_labels

_Scalar = TypeVar("_Scalar", bound=np.generic)

# Samples and label bytes of one request: larger requests make fewer records of the log. The buffer may go over by one
# Arrow batch.
BUFFER_SAMPLES, BUFFER_LABEL_BYTES = 65_536, 4 << 20
SAMPLE_BYTES = 16

NULL_LABELS, NULL_TIMESTAMP, NULL_VALUE = "null_labels", "null_timestamp", "null_value"
BAD_LABELS = "labels_malformed"


@dataclass(frozen=True, slots=True)
class SampleBatch:
    """n samples in their order. labels: label sets as a sender wrote them; code: index of each sample's label set,
    ts_ms: int64 (n,); value: float64 (n,)."""

    labels: list[bytes]
    code: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    value: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ts_ms)

    def where(self, kept: NDArray[np.bool_]) -> SampleBatch:
        """The rows for which `kept`, bool (n,), is true."""
        return SampleBatch(self.labels, self.code[kept], self.ts_ms[kept], self.value[kept])

    def pieces(self, limits: IngestLimits) -> Iterator[SampleBatch]:
        """All rows in order, cut into pieces of the size of a request or of one row."""
        if len(self) <= 1 or self._fits(limits):
            if len(self):
                yield self
            return
        middle = len(self) // 2
        for rows in (slice(0, middle), slice(middle, None)):
            yield from SampleBatch(self.labels, self.code[rows], self.ts_ms[rows], self.value[rows]).pieces(limits)

    def by_series(self) -> Rows:
        """Each series once, with its samples in the order of the rows."""
        order = np.argsort(self.code, kind="stable")
        codes, counts = np.unique(self.code, return_counts=True)
        labels = [self.labels[code] for code in codes.tolist()]
        return make_rows(labels, counts.astype(np.uint32), self.ts_ms[order], self.value[order])

    def each_alone(self) -> Rows:
        """Each sample as a row, so that the pipeline refuses it alone."""
        return make_rows([self.labels[code] for code in self.code.tolist()], None, self.ts_ms, self.value)

    def _fits(self, limits: IngestLimits) -> bool:
        # Sizes for a request with one row a sample, which is the larger of the two forms.
        sizes = np.array([len(each) for each in self.labels], np.int64)
        size = int(sizes[self.code].sum()) + SAMPLE_BYTES * len(self)
        return len(self) <= min(limits.series_max, limits.samples_max) and size <= limits.request_bytes_max


class RowBuffer:
    """Collects rows of Arrow batches. Label sets have codes until the buffer is drained."""

    def __init__(self) -> None:
        self._codes: dict[bytes, int] = {}
        self._parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = []
        self._samples = 0
        self._label_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the rows are enough for a request."""
        return self._samples >= BUFFER_SAMPLES or self._label_bytes >= BUFFER_LABEL_BYTES

    def add(self, batch: pa.RecordBatch, joined: pa.DictionaryArray) -> None:
        """Add rows without nulls. joined: the labels of the rows."""
        numbers = np.array([self._code(raw) for raw in joined.dictionary.to_pylist()], np.int64)
        ts_ms = batch.column(TS).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() // US_PER_MS
        value = batch.column(VALUE).to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        self._parts.append((numbers[joined.indices.to_numpy(zero_copy_only=False)], ts_ms, value))
        self._samples += len(ts_ms)

    def drain(self) -> SampleBatch:
        """All rows in their order. The buffer is empty afterwards."""
        codes, times, values = zip(*self._parts, strict=True) if self._parts else ((), (), ())
        rows = SampleBatch(
            list(self._codes), _joined(codes, np.int64), _joined(times, np.int64), _joined(values, np.float64)
        )
        self._codes, self._parts, self._samples, self._label_bytes = {}, [], 0, 0
        return rows

    def _code(self, raw: bytes) -> int:
        code = self._codes.setdefault(raw, len(self._codes))
        if code == len(self._codes) - 1:
            self._label_bytes += len(raw)
        return code


def _joined(parts: Sequence[NDArray[_Scalar]], scalar: type[_Scalar]) -> NDArray[_Scalar]:
    return np.concatenate([np.empty(0, scalar), *parts])


@dataclass(frozen=True, slots=True)
class WholeRows:
    """batch: the rows without nulls. joined: the labels of these rows. refused: number of left-out rows, by reason."""

    batch: pa.RecordBatch
    joined: pa.DictionaryArray
    refused: dict[str, int]


def whole_rows(batch: pa.RecordBatch) -> WholeRows:
    """The rows of a batch that have labels, a timestamp and a value. A row with several faults counts once."""
    joined = joined_labels(batch.column(LABELS))
    faults = (
        (NULL_LABELS, batch.column(LABELS).is_null()),
        (BAD_LABELS, joined.indices.is_null()),
        (NULL_TIMESTAMP, batch.column(TS).is_null()),
        (NULL_VALUE, batch.column(VALUE).is_null()),
    )
    good = np.ones(batch.num_rows, np.bool_)
    refused: dict[str, int] = {}
    for reason, column in faults:
        bad = column.to_numpy(zero_copy_only=False) & good
        if bad.any():
            refused[reason] = int(bad.sum())
            good &= ~bad
    if refused:
        kept = pa.array(good)
        batch, joined = batch.filter(kept), pc.filter(joined, kept)
    return WholeRows(batch, joined, refused)
