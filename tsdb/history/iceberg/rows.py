"""Rows: turns fragments and labels into rows of the table, grouped as its files are. Pure.

A group is one (day, metric bucket) of the table. Its series are sorted by metric and id, their samples by time. Each
(series, timestamp) is there once, with the highest order of the given ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from tsdb.codec.chunk.chunk import Fragment
from tsdb.codec.histogram_rows import histogram_column, start_column
from tsdb.history.merge import merge
from tsdb.model.arrays import csr_places
from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.labels import METRIC_NAME, SEPARATOR, metric_name
from tsdb.model.times import DAY_MS

TENANT = b"__tenant__"
ROW_COLUMNS = ("metric", "labels", "series_id", "tenant", "ts", "value", "order")  # Those that an emission fills.
DETAIL_COLUMNS = ("histogram", "start_ts")  # Those of a group in which a sample has details.
BLOCK_ROWS = 1 << 17  # Rows of a row group. The labels of a row take some 200 bytes before they are encoded.
# Rows of a row group as emitted. A read of one series decodes a row group of each file of a day, in 0.4 of the CPU of
# large ones; the files are 3 % larger until a compaction.
EMITTED_BLOCK_ROWS = 1 << 15


@dataclass(frozen=True, slots=True)
class LabelCodes:
    """Labels of k series, as codes into distinct names and values.

    metric, tenant: int32 (k,), codes into `texts`. name, value: int32 (m,), codes of all labels into `names` and
    `texts`; those of series i are [label_start[i], label_start[i + 1]), int64 (k + 1,), sorted by name.
    """

    names: pa.Array
    texts: pa.Array
    metric: NDArray[np.int32]
    tenant: NDArray[np.int32]
    name: NDArray[np.int32]
    value: NDArray[np.int32]
    label_start: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class BucketRows:
    """Rows of one day and bucket. day: days since the epoch. fragment: sorted by metric, then by signed series id; its
    pack and window are of no meaning. canonical: labels of each of its series."""

    day: int
    bucket: int
    fragment: Fragment
    canonical: list[bytes]

    def keep(self, rows: NDArray[np.bool_]) -> BucketRows:
        """The rows with True, and their series."""
        fragment = self.fragment
        counts = np.add.reduceat(rows.astype(np.int64), fragment.sample_start[:-1])
        series = np.flatnonzero(counts)
        starts = np.concatenate(([0], np.cumsum(counts[series])))
        kept = Fragment(
            fragment.pack_id,
            fragment.window_start_ms,
            fragment.series_id[series],
            starts,
            fragment.ts_ms[rows],
            fragment.value[rows],
            fragment.order[rows],
            None if fragment.details is None else fragment.details.take(np.flatnonzero(rows)),
        )
        return BucketRows(self.day, self.bucket, kept, [self.canonical[at] for at in series.tolist()])


def groups_of(
    fragments: Iterable[Fragment], labels: Callable[[Iterable[int]], list[bytes | None]], buckets: int
) -> list[BucketRows]:
    """The groups of all samples, by day and bucket. A series without labels has the metric "" and no labels.

    A window lies within one day, which every time set keeps.
    """
    of_pack: dict[tuple[int, int], list[Fragment]] = defaultdict(list)
    for fragment in fragments:
        of_pack[fragment.window_start_ms // DAY_MS, fragment.pack_id].append(fragment)
    bucket_of = MetricBuckets(buckets)
    parts: dict[tuple[int, int], list[tuple[Fragment, list[bytes]]]] = defaultdict(list)
    for (day, _), some in sorted(of_pack.items()):
        merged = merge(some)
        canonical = [one or b"" for one in labels(merged.series_id.tolist())]
        bucket = np.array([bucket_of(metric_name(one)) for one in canonical])
        for number in np.unique(bucket).tolist():
            chosen = np.flatnonzero(bucket == number)
            parts[day, number].append((_taken(merged, chosen), [canonical[at] for at in chosen.tolist()]))
    return [_group(day, bucket, some) for (day, bucket), some in sorted(parts.items())]


def _group(day: int, bucket: int, parts: Sequence[tuple[Fragment, list[bytes]]]) -> BucketRows:
    lengths = [np.diff(fragment.sample_start) for fragment, _ in parts]
    joined = Fragment(
        0,
        day * DAY_MS,
        np.concatenate([fragment.series_id for fragment, _ in parts]),
        np.concatenate(([0], np.cumsum(np.concatenate(lengths)))),
        np.concatenate([fragment.ts_ms for fragment, _ in parts]),
        np.concatenate([fragment.value for fragment, _ in parts]),
        np.concatenate([fragment.order for fragment, _ in parts]),
        joined_details([(fragment.samples, fragment.details) for fragment, _ in parts]),
    )
    canonical = [one for _, some in parts for one in some]
    metrics = [metric_name(one) for one in canonical]
    signed = joined.series_id.view(np.int64).tolist()
    by_name = np.array(sorted(range(len(signed)), key=lambda at: (metrics[at], signed[at])), np.int64)
    return BucketRows(day, bucket, _taken(joined, by_name), [canonical[at] for at in by_name.tolist()])


def _taken(fragment: Fragment, series: NDArray[np.int64]) -> Fragment:
    """The series in this order."""
    rows, starts = csr_places(fragment.sample_start, series)
    return Fragment(
        fragment.pack_id,
        fragment.window_start_ms,
        fragment.series_id[series],
        starts,
        fragment.ts_ms[rows],
        fragment.value[rows],
        fragment.order[rows],
        None if fragment.details is None else fragment.details.take(rows),
    )


class MetricBuckets:
    """The bucket of a metric, as Iceberg's transform computes it."""

    def __init__(self, count: int) -> None:
        self._bucket = BucketTransform(count).transform(StringType())
        self._known: dict[bytes, int] = {}

    def __call__(self, metric: bytes) -> int:
        if metric not in self._known:
            found = self._bucket(text_of(metric))
            assert found is not None, "no metric is null"
            self._known[metric] = found
        return self._known[metric]


def text_of(part: bytes) -> str:
    """A name or value in a column of text."""
    return part.decode(errors="replace")


# Arrow.


def arrow_blocks(group: BucketRows, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows as tables of at most EMITTED_BLOCK_ROWS rows, in order. schema: see encoded_schema."""
    columns, fragment = _series_columns(group.canonical), group.fragment
    of_row = np.repeat(np.arange(fragment.series), np.diff(fragment.sample_start))
    for first in range(0, fragment.samples, EMITTED_BLOCK_ROWS):
        rows = slice(first, first + EMITTED_BLOCK_ROWS)
        yield _block(fragment, columns, of_row[rows], rows, schema)


def encoded_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of the table's files with metric, tenant and labels as dictionaries, which is what blocks have: the
    labels of 131,072 rows take 8 bytes each instead of some 20."""
    code = pa.dictionary(pa.int32(), pa.string())
    changed = []
    for one in schema:
        kind = one.type
        if one.name in ("metric", "tenant"):
            kind = code
        elif one.name == "labels":
            kind = pa.map_(one.type.key_field.with_type(code), one.type.item_field.with_type(code))
        changed.append(one.with_type(kind))
    return pa.schema(changed)


def _block(
    fragment: Fragment, columns: LabelCodes, of_row: NDArray[np.int64], rows: slice, schema: pa.Schema
) -> pa.Table:
    labels, starts = csr_places(columns.label_start, of_row)
    given = {
        "metric": _coded(columns.metric[of_row], columns.texts),
        "labels": pa.MapArray.from_arrays(
            pa.array(starts.astype(np.int32)),
            _coded(columns.name[labels], columns.names),
            _coded(columns.value[labels], columns.texts),
            type=schema.field("labels").type,
        ),
        "series_id": pa.array(fragment.series_id.view(np.int64)[of_row]),
        "tenant": _coded(columns.tenant[of_row], columns.texts),
        "ts": pa.array(fragment.ts_ms[rows] * 1000, pa.timestamp("us", "UTC")),
        "value": pa.array(fragment.value[rows]),
        "order": pa.array(fragment.order[rows]),
    }
    details = None if fragment.details is None else fragment.details.part(*rows.indices(fragment.samples)[:2])
    if details is not None:
        given |= _details(details, len(of_row), schema)
        if details.histogram_of is not None:
            given["value"] = pa.array(fragment.value[rows], mask=details.histogram_of >= 0)
    arrays = [given[one.name] if one.name in given else pa.nulls(len(of_row), one.type) for one in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _details(details: SampleDetails, rows: int, schema: pa.Schema) -> dict[str, pa.Array]:
    histograms = histogram_column(details, rows).cast(schema.field("histogram").type)
    return {"histogram": histograms, "start_ts": start_column(details, rows)}


def _coded(codes: NDArray[np.int32], texts: pa.Array) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(codes), texts)


def with_used_texts(block: pa.Table) -> pa.Table:
    """The same rows, with dictionaries of the texts that they use: a file has all texts of each dictionary."""
    return pa.Table.from_arrays([_used(one.combine_chunks()) for one in block.columns], schema=block.schema)


def _used(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        codes = column.indices.to_numpy(zero_copy_only=False)
        used = np.bincount(codes, minlength=len(column.dictionary)) > 0
        rank = np.cumsum(used, dtype=np.int32) - 1
        return _coded(rank[codes], column.dictionary.filter(pa.array(used)))
    if pa.types.is_map(column.type):
        starts = column.offsets.to_numpy()
        inner = slice(int(starts[0]), int(starts[-1]))
        return pa.MapArray.from_arrays(
            pa.array(starts - starts[0]), _used(column.keys[inner]), _used(column.items[inner]), type=column.type
        )
    return column


def _series_columns(canonical: Sequence[bytes]) -> LabelCodes:
    names: dict[bytes, int] = {}
    texts: dict[bytes, int] = {b"": 0}
    metric: list[int] = []
    tenant: list[int] = []
    name: list[int] = []
    value: list[int] = []
    counts: list[int] = []
    for one in canonical:
        parts = one.split(SEPARATOR) if one else []
        of_series = [0, 0]
        before = len(name)
        for key, text in zip(parts[::2], parts[1::2], strict=True):
            code = texts.setdefault(text, len(texts))
            if key == METRIC_NAME:
                of_series[0] = code
            elif key == TENANT:
                of_series[1] = code
            else:
                name.append(names.setdefault(key, len(names)))
                value.append(code)
        metric.append(of_series[0])
        tenant.append(of_series[1])
        counts.append(len(name) - before)
    return LabelCodes(
        pa.array(map(text_of, names), pa.string()),
        pa.array(map(text_of, texts), pa.string()),
        np.array(metric, np.int32),
        np.array(tenant, np.int32),
        np.array(name, np.int32),
        np.array(value, np.int32),
        np.concatenate(([0], np.cumsum(counts, dtype=np.int64))),
    )
