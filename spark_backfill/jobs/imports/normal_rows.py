"""Normal rows: turn raw rows into samples, series to announce, and refused rows with their reason.

The label text of rows is parsed once for each distinct text and not for each row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_backfill.failures import quoted_errors
from spark_backfill.writing.detail_columns import HISTOGRAM_DDL, details_of
from tsdb.codec.columns.details import is_storable
from tsdb.codec.histogram_rows import HISTOGRAM
from tsdb.model.errors import CorruptData, InvalidRequest
from tsdb.model.histograms import count_errors
from tsdb.model.labels import LabelLimits, canonical_labels, normalize_labels, series_id
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.window import EPOCH_MS, TS_MS_MAX, TS_MS_MIN

SAMPLE, SERIES, REJECT = 0, 1, 2
NORMAL_SCHEMA = (
    "what tinyint, partition int, pack_id bigint, series_id bigint, window_start_ms bigint, ts_ms bigint,"
    f" value double, histogram {HISTOGRAM_DDL}, start_ms bigint, epoch int, canonical binary, reason string,"
    " shown string"
)
_ARROW = pa.schema(
    [
        ("what", pa.int8()),
        ("partition", pa.int32()),
        ("pack_id", pa.int64()),
        ("series_id", pa.int64()),
        ("window_start_ms", pa.int64()),
        ("ts_ms", pa.int64()),
        ("value", pa.float64()),
        ("histogram", HISTOGRAM),
        ("start_ms", pa.int64()),
        ("epoch", pa.int32()),
        ("canonical", pa.binary()),
        ("reason", pa.string()),
        ("shown", pa.string()),
    ]
)
# Joins the labels of several columns into one text; JSON text never contains this character.
SEPARATOR = "\x01"
SHOWN_CHARS_MAX = 500
OUT_OF_RANGE = "timestamp_out_of_range"
BAD_HISTOGRAM = "bad_histogram"
TOO_WIDE = "histogram_too_many_buckets"

TEXTS_MAX = 500_000  # Cached texts. A full cache is cleared; its texts are parsed again when they come.


@dataclass(frozen=True, slots=True)
class Normalize:
    """A function that Spark sends to tasks, with settings that all processes of the log share."""

    placement_labels: tuple[str, ...]
    partitions: int
    window_ms: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Used by `mapInArrow`: takes rows of RAW_SCHEMA and yields rows of NORMAL_SCHEMA."""
        texts = LabelTexts(PlacementRule(self.placement_labels), self.partitions)
        announced: set[tuple[int, int]] = set()
        with quoted_errors():
            for batch in batches:
                if batch.num_rows:
                    yield from self._normal(batch, texts, announced)

    def _normal(
        self, batch: pa.RecordBatch, texts: LabelTexts, announced: set[tuple[int, int]]
    ) -> Iterator[pa.RecordBatch]:
        coded = pc.fill_null(batch.column("labels"), "").dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False)
        series = [texts.series(text) for text in coded.dictionary.to_pylist()]
        ts_ms = batch.column("ts_ms")
        times = pc.fill_null(ts_ms, 0).to_numpy(zero_copy_only=False)
        unnamed = np.array([isinstance(each, Refused) for each in series])[codes]
        low_ms, high_ms = time_bounds(self.window_ms)
        outside = (times < low_ms) | (times >= high_ms)
        batch = _with_problems(batch)
        flawed = pc.is_valid(batch.column("problem")).to_numpy(zero_copy_only=False)
        good = np.flatnonzero(~(flawed | unnamed | outside))
        if len(good):
            columns = _SeriesColumns.of(series)
            yield self._samples(columns, codes[good], times[good], batch.take(pa.array(good)))
            yield from _fresh_series(series, columns, codes[good], times[good], announced)
        bad = np.flatnonzero(flawed | unnamed | outside)
        if len(bad):
            yield _rejects(batch.take(pa.array(bad)), [series[code] for code in codes[bad].tolist()])

    def _samples(
        self, columns: _SeriesColumns, codes: NDArray[np.int32], times: NDArray[np.int64], rows: pa.RecordBatch
    ) -> pa.RecordBatch:
        return _batch(
            len(codes),
            what=pa.array(np.full(len(codes), SAMPLE, np.int8)),
            partition=pa.array(columns.partition[codes]),
            pack_id=pa.array(columns.pack_id[codes]),
            series_id=pa.array(columns.series_id[codes]),
            window_start_ms=pa.array(times - times % self.window_ms),
            ts_ms=pa.array(times),
            value=rows.column("value"),
            histogram=rows.column("histogram").cast(HISTOGRAM),
            start_ms=rows.column("start_ms"),
        )


def time_bounds(window_ms: int) -> tuple[int, int]:
    """The range [low_ms, high_ms) of valid times. The windows of all of them are in the range of timestamps."""
    return TS_MS_MIN + window_ms + 1, TS_MS_MAX - window_ms


@dataclass(frozen=True, slots=True)
class _SeriesColumns:
    """One entry for each distinct label text; zeros for a refused text. Ids are int64 with the bits of the uint64."""

    series_id: NDArray[np.int64]
    pack_id: NDArray[np.int64]
    partition: NDArray[np.int32]

    @classmethod
    def of(cls, series: list[PlacedSeries | Refused]) -> _SeriesColumns:
        known = [each if isinstance(each, PlacedSeries) else PlacedSeries(0, 0, 0, b"") for each in series]
        return cls(
            np.array([each.series_id for each in known], np.uint64).view(np.int64),
            np.array([each.pack_id for each in known], np.uint64).view(np.int64),
            np.array([each.partition for each in known], np.int32),
        )


def _fresh_series(
    series: list[PlacedSeries | Refused],
    columns: _SeriesColumns,
    codes: NDArray[np.int32],
    times: NDArray[np.int64],
    announced: set[tuple[int, int]],
) -> Iterator[pa.RecordBatch]:
    """The (series, index epoch) pairs that this task has not yielded yet."""
    phase = (columns.series_id.view(np.uint64)[codes] % np.uint64(EPOCH_MS)).astype(np.int64)
    pairs = np.unique(np.stack([codes.astype(np.int64), (times + phase) // EPOCH_MS]), axis=1)
    fresh = [
        (each, epoch)
        for code, epoch in pairs.T.tolist()
        if isinstance(each := series[code], PlacedSeries) and (each.series_id, epoch) not in announced
    ]
    if not fresh:
        return
    announced.update((each.series_id, epoch) for each, epoch in fresh)
    yield _batch(
        len(fresh),
        what=pa.array([SERIES] * len(fresh), pa.int8()),
        partition=pa.array([each.partition for each, _ in fresh], pa.int32()),
        pack_id=pa.array(np.array([each.pack_id for each, _ in fresh], np.uint64).view(np.int64)),
        series_id=pa.array(np.array([each.series_id for each, _ in fresh], np.uint64).view(np.int64)),
        epoch=pa.array([epoch for _, epoch in fresh], pa.int32()),
        canonical=pa.array([each.canonical for each, _ in fresh], pa.binary()),
    )


def _with_problems(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, with a problem for each histogram that cannot be stored."""
    column = batch.column("histogram")
    given = np.flatnonzero(column.is_valid())
    if not len(given):
        return batch
    problems = batch.column("problem").to_pylist()
    for row, reason in _histogram_problems(batch.take(pa.array(given)), given).items():
        problems[row] = problems[row] or reason
    place = batch.schema.get_field_index("problem")
    return batch.set_column(place, "problem", pa.array(problems, pa.string()))


def _histogram_problems(rows: pa.RecordBatch, numbers: NDArray[np.int64]) -> dict[int, str]:
    """The reason of each refused histogram, by its number. All rows have histograms."""
    try:
        details = details_of(rows)
    except CorruptData:
        if len(rows) == 1:
            return {int(numbers[0]): BAD_HISTOGRAM}
        half = len(rows) // 2
        first = _histogram_problems(rows.slice(0, half), numbers[:half])
        return first | _histogram_problems(rows.slice(half), numbers[half:])
    assert details is not None
    assert details.histograms is not None
    columns = details.histograms
    wide = np.array([not is_storable(shape) for shape in columns.shapes])[columns.shape_of]
    found = {int(numbers[row]): error.reason for row, error in count_errors(columns).items()}
    return found | {int(numbers[row]): TOO_WIDE for row in np.flatnonzero(wide).tolist()}


def _rejects(rows: pa.RecordBatch, series: list[PlacedSeries | Refused]) -> pa.RecordBatch:
    """One row for each refused row, with its first reason and its text in the file."""
    reasons, texts = [], []
    for row, each in zip(rows.to_pylist(), series, strict=True):
        labels = each.reason if isinstance(each, Refused) else None
        reasons.append(row["problem"] or labels or OUT_OF_RANGE)
        shown = row["shown"] or f"{row['ts_ms']} {row['value']}"
        texts.append(f"{row['labels']} {shown}"[:SHOWN_CHARS_MAX])
    return _batch(
        len(reasons),
        what=pa.array([REJECT] * len(reasons), pa.int8()),
        reason=pa.array(reasons, pa.string()),
        shown=pa.array(texts, pa.string()),
    )


def _batch(rows: int, **columns: pa.Array) -> pa.RecordBatch:
    """A batch with nulls in the columns that are not given."""
    arrays = [columns.get(field.name, pa.nulls(rows, field.type)) for field in _ARROW]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


@dataclass(frozen=True, slots=True)
class PlacedSeries:
    """A series with its pack and partition. Ids are unsigned. canonical: canonical labels."""

    series_id: int
    pack_id: int
    partition: int
    canonical: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """Labels that are not valid for a series. reason: an error code."""

    reason: str


class LabelTexts:
    def __init__(self, rule: PlacementRule, partitions: int, limits: LabelLimits | None = None) -> None:
        self._rule = rule
        self._partitions = partitions
        self._limits = limits or LabelLimits()
        self._known: dict[str, PlacedSeries | Refused] = {}

    def series(self, text: str) -> PlacedSeries | Refused:
        """The series of a text: JSON objects joined by SEPARATOR. Labels of a later object replace earlier ones."""
        found = self._known.get(text)
        if found is None:
            if len(self._known) >= TEXTS_MAX:
                self._known.clear()
            found = self._known[text] = self._parsed(text)
        return found

    def _parsed(self, text: str) -> PlacedSeries | Refused:
        labels: dict[str, str] = {}
        try:
            for part in filter(None, text.split(SEPARATOR)):
                labels |= _object(part)
        except (ValueError, RecursionError):
            return Refused("bad_labels")
        return self.placed(labels)

    def placed(self, labels: Mapping[str, str]) -> PlacedSeries | Refused:
        """The series of these labels."""
        if not labels.get("__name__"):
            return Refused("no_metric_name")
        try:
            canonical = normalize_labels(canonical_labels(labels), self._limits)
        except InvalidRequest as error:
            return Refused(error.reason)
        place = self._rule.place(canonical)
        partition = partition_of(place.placement, self._partitions)
        return PlacedSeries(series_id(canonical), place.pack_id, partition, canonical)


def _object(text: str) -> dict[str, str]:
    """Labels of a JSON object of strings; a null value means no label. Raises ValueError."""
    value = json.loads(text, object_pairs_hook=_distinct)
    if not isinstance(value, dict):
        raise ValueError("no object")
    labels = {name: each for name, each in value.items() if each is not None}
    if not all(isinstance(each, str) for each in labels.values()):
        raise ValueError("a label that is no text")
    return labels


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a label twice")
    return made
