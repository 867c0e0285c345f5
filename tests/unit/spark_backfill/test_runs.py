"""Runs: samples by series and window, narrowed and put into rows of Arrow, lose nothing and keep their bits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.types import ArrayType, DoubleType, MapType, StringType, StructField, StructType, TimestampType

from spark_backfill.source.columns import columns_of, sample_schema
from spark_backfill.source.options import source_options
from spark_backfill.source.rows import record_batches
from spark_backfill.source.runs import BATCH_SAMPLES, SampleRuns, gathered, run_batches
from spark_backfill.source.series_table import SeriesLabels
from support.data.chunk_cases import START_MS, fragment
from support.data.column_cases import STALE
from support.data.detail_cases import detailed_fragments
from tsdb.codec.chunk.chunk import Fragment
from tsdb.codec.histogram_rows import read_details
from tsdb.model.details import joined_details, same_details
from tsdb.model.errors import InvalidRequest

ALL = columns_of(sample_schema(runs=True), runs=True)


def fragments() -> list[Fragment]:
    """Two windows of one pack, one of another."""
    return [
        fragment([(1, [START_MS, START_MS + 5], [1.0, STALE], [1, 1]), (2, [START_MS], [-0.0], [1])]),
        fragment([(1, [START_MS + 9], [3.0], [1])]),
        fragment([(7, [START_MS + 5], [4.0], [1]), (9, [START_MS + 6, START_MS + 7], [5.0, 6.0], [1, 1])], pack_id=8),
    ]


@pytest.mark.parametrize(("name", "kind"), [("native_and_starts", "histogram and start_ts"), ("starts", "start_ts")])
@pytest.mark.parametrize("runs", [False, True])
def test_samples_with_details_are_refused_where_no_column_shows_them(name: str, kind: str, runs: bool) -> None:
    found = SampleRuns.of([*fragments(), detailed_fragments()[name]])
    columns = columns_of(StructType([*sample_schema(runs=runs).fields[1:]]), runs=runs)
    with pytest.raises(InvalidRequest, match=f"samples have {kind}, and no column shows that") as refused:
        list(run_batches(found, columns, None) if runs else record_batches(found.samples, columns, None))
    assert refused.value.reason == "no_column"


@pytest.mark.parametrize("runs", [False, True])
def test_details_come_back_from_their_columns(runs: bool) -> None:
    given = [*fragments(), detailed_fragments()["native_and_starts"], detailed_fragments()["native_custom"].part(0, 2)]
    found = SampleRuns.of(given)
    asked = [field for field in sample_schema(runs=runs, details=True).fields if field.name != "labels"]
    columns = columns_of(StructType(asked), runs=runs)
    batches = list(run_batches(found, columns, None) if runs else record_batches(found.samples, columns, None))
    table = pa.Table.from_batches(batches)
    histograms, starts = table["histogram"], table["start_ts"]
    if runs:
        histograms, starts = pc.list_flatten(histograms), pc.list_flatten(starts)
    assert same_details(read_details(histograms, starts), found.details)
    values = pc.list_flatten(table["value"]) if runs else table["value"]
    assert values.is_null().to_pylist() == histograms.is_valid().to_pylist()


def test_a_cut_run_keeps_the_details_of_its_samples() -> None:
    given = detailed_fragments()["native_and_starts"]
    runs = SampleRuns.of([given, given])
    kept = np.arange(72) % 5 < 3
    assert given.details is not None
    want = joined_details([(36, given.details), (36, given.details)])
    assert want is not None
    assert same_details(runs.where(kept).details, want.take(np.flatnonzero(kept)))
    assert same_details(runs.part(3, 6).details, given.details)
    assert same_details(runs.samples.at(kept).details, want.take(np.flatnonzero(kept)))


def test_a_column_of_details_of_another_type_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="column histogram is double; want struct") as refused:
        columns_of(StructType([StructField("histogram", DoubleType())]))
    assert refused.value.reason == "bad_schema"
    assert columns_of(StructType([StructField("histogram", StringType())])).labels == ("histogram",)


def rows_of(batches: list[pa.RecordBatch]) -> list[tuple[object, ...]]:
    """(labels, series_id, pack_id, times in us, bits of the values) of every row."""
    table = pa.Table.from_batches(batches)
    rows: list[tuple[object, ...]] = []
    for labels, series, pack, ts, value in zip(*(table[name] for name in ALL.names), strict=True):
        bits = value.values.to_numpy(zero_copy_only=False).view(np.int64).tolist()
        rows.append((labels.as_py(), series.as_py(), pack.as_py(), ts.values.cast(pa.int64()).to_pylist(), bits))
    return rows


def bits(*values: float) -> list[int]:
    found: list[int] = np.array(values).view(np.int64).tolist()
    return found


def test_a_row_is_a_series_of_a_window() -> None:
    table = SeriesLabels(np.array([9, 1, 2, 7], np.uint64), [b"a\xff9", b"a\xff1", b"a\xff2", b"a\xff7"])
    start_us = START_MS * 1000
    assert rows_of(list(run_batches(SampleRuns.of(fragments()), ALL, table))) == [
        ([("a", "1")], 1, 7, [start_us, start_us + 5000], bits(1.0, STALE)),
        ([("a", "2")], 2, 7, [start_us], bits(-0.0)),
        ([("a", "1")], 1, 7, [start_us + 9000], bits(3.0)),
        ([("a", "7")], 7, 8, [start_us + 5000], bits(4.0)),
        ([("a", "9")], 9, 8, [start_us + 6000, start_us + 7000], bits(5.0, 6.0)),
    ]


def test_unwanted_samples_leave_no_empty_run() -> None:
    runs = SampleRuns.of(fragments())
    assert runs.where(np.ones(7, np.bool_)) is runs
    kept = runs.where((runs.ts_ms >= START_MS + 5) & (runs.ts_ms < START_MS + 7))
    assert kept.series_id.tolist() == [1, 7, 9]
    assert kept.pack_id.tolist() == [7, 8, 8]
    assert kept.start.tolist() == [0, 1, 2, 3]
    assert kept.value.view(np.int64).tolist() == bits(STALE, 4.0, 5.0)
    assert len(runs.where(np.zeros(7, np.bool_))) == 0
    assert kept.samples.series_id.tolist() == [1, 7, 9]


def test_small_fragments_are_gathered_and_large_ones_cut() -> None:
    def of(series: int, samples: int) -> Fragment:
        ts_ms = START_MS + np.arange(samples)
        return fragment([(number, ts_ms, np.zeros(samples), np.ones(samples)) for number in range(series)])

    small, single, large = of(3, 100), of(1, 2 * BATCH_SAMPLES), of(5, BATCH_SAMPLES // 2)
    together = list(gathered([*[small] * 300, single, large]))
    assert [int(runs.start[-1]) for runs in together[:-2]] == [65_700]
    columns = columns_of(StructType([sample_schema(runs=True)[name] for name in ("series_id", "value")]), runs=True)
    batches = [batch for runs in together for batch in run_batches(runs, columns, None)]
    samples = [int(pa.compute.sum(pa.compute.list_value_length(batch["value"])).as_py()) for batch in batches]
    assert sum(samples) == 300 * 300 + 2 * BATCH_SAMPLES + 5 * (BATCH_SAMPLES // 2)
    assert sum(batch.num_rows for batch in batches) == 300 * 3 + 1 + 5
    # A run is never cut, so a batch may exceed the size; a small remainder joins the last batch.
    assert max(samples) < 2 * BATCH_SAMPLES + 2 * BATCH_SAMPLES
    assert min(samples) >= BATCH_SAMPLES


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rows": "columns"}, "option rows is 'columns'; want samples or runs"),
        ({"rows": "runs", "source": "log"}, "source log has none"),
        ({"rows": "runs", "source": "chunks"}, "source chunks has none"),
    ],
)
def test_a_shape_of_rows_that_is_not_there_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        source_options(options)


@pytest.mark.parametrize(("size", "splits"), [(0, 32), (32 << 20, 32), ((32 << 20) + 1, 33), (1 << 60, 100_000)])
def test_more_is_split_further_and_what_is_not_known_as_asked(size: int, splits: int) -> None:
    assert source_options({"split_bytes": str(1 << 20)}).splits_of(size) == splits


def test_a_schema_of_samples_is_no_schema_of_runs() -> None:
    with pytest.raises(InvalidRequest, match="column ts is timestamp; want array<timestamp>"):
        columns_of(sample_schema(), runs=True)
    with pytest.raises(InvalidRequest, match="column ts is array<timestamp>; want timestamp"):
        columns_of(sample_schema(runs=True))


@pytest.mark.parametrize("nulls", [True, False])
def test_batches_are_of_the_types_that_spark_asks_for(nulls: bool) -> None:
    """A schema as text says that elements may be null, ours that none is; Spark refuses batches that say otherwise."""
    asked = StructType().add("labels", MapType(StringType(), StringType(), nulls))
    asked = asked.add("ts", ArrayType(TimestampType(), nulls)).add("value", ArrayType(DoubleType(), nulls))
    table = SeriesLabels(np.array([1, 2, 7, 9], np.uint64), [b"a\xff1", b"a\xff2", b"a\xff7", b"a\xff9"])
    (batch,) = run_batches(SampleRuns.of(fragments()), columns_of(asked, runs=True), table)
    types = {field.name: field.type for field in batch.schema}
    assert [types["ts"].value_field.nullable, types["value"].value_field.nullable] == [nulls, nulls]
    assert types["labels"].item_field.nullable is nulls
    batch.validate(full=True)
    for column, field in zip(batch.columns, batch.schema, strict=True):
        assert column.type.equals(field.type)


def test_a_span_keeps_its_start_and_not_its_end() -> None:
    runs = SampleRuns.of(fragments())
    assert runs.within(START_MS, START_MS + 10) is runs
    assert runs.within(START_MS, START_MS + 9).ts_ms.tolist() == [START_MS + at for at in (0, 5, 0, 5, 6, 7)]
    assert runs.within(START_MS + 6, START_MS + 9).series_id.tolist() == [9]
    assert not len(runs.within(START_MS + 10, START_MS + 20))
