"""Normal rows: each raw row becomes a sample or a reject, and each series is announced once an epoch."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from spark_backfill.jobs.imports.normal_rows import REJECT, SAMPLE, SERIES, Normalize
from spark_backfill.source.columns import DETAILS
from spark_backfill.writing.detail_columns import HISTOGRAM_DDL
from support.oracles.histogram_twin import Hist, detailed_fragment
from tsdb.codec.histogram_rows import HISTOGRAM, histogram_column
from tsdb.history.rows import unsigned
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.window import EPOCH_MS, index_epoch

WINDOW_MS = 14_400_000
UP = {"__name__": "up", "job": "j"}
RAW = pa.schema(
    [
        ("labels", pa.string()),
        ("ts_ms", pa.int64()),
        ("value", pa.float64()),
        ("histogram", HISTOGRAM),
        ("start_ms", pa.int64()),
        ("problem", pa.string()),
        ("shown", pa.string()),
    ]
)


def normal(*rows: tuple[object, object, object, object], histogram: object = None) -> list[dict[str, object]]:
    columns = zip(*((*row[:3], histogram, None, row[3], None) for row in rows), strict=True)
    batch = pa.RecordBatch.from_arrays(
        [pa.array(column, each.type) for column, each in zip(columns, RAW, strict=True)], schema=RAW
    )
    made = Normalize(("job", "instance"), 3, WINDOW_MS)([batch.slice(0, 1), batch.slice(1)])
    return [row for each in made for row in each.to_pylist()]


def test_samples_have_their_series_pack_and_window() -> None:
    number = series_id(canonical_labels(UP))
    found = normal((json.dumps(UP), -1, 1.5, None), (json.dumps(UP), EPOCH_MS * 700, 2.5, None))
    samples = [row for row in found if row["what"] == SAMPLE]
    assert [(row["ts_ms"], row["window_start_ms"], row["value"]) for row in samples] == [
        (-1, -WINDOW_MS, 1.5),
        (EPOCH_MS * 700, EPOCH_MS * 700 // WINDOW_MS * WINDOW_MS, 2.5),
    ]
    assert {unsigned(int(str(row["series_id"]))) for row in samples} == {number}
    epochs = [row["epoch"] for row in found if row["what"] == SERIES]
    assert epochs == [index_epoch(number, -1), index_epoch(number, EPOCH_MS * 700)]


def test_the_first_thing_wrong_is_the_reason() -> None:
    found = normal(
        (None, 1, 1.0, None),
        ("{", 1, 1.0, None),
        ("{", 1, 1.0, "null_value"),
        (json.dumps(UP), 1 << 62, 1.0, None),
        (json.dumps(UP), None, 1.0, "null_timestamp"),
    )
    assert {row["what"] for row in found} == {REJECT}
    assert [row["reason"] for row in found] == [
        *("no_metric_name", "bad_labels", "null_value", "timestamp_out_of_range", "null_timestamp"),
    ]


def test_a_batch_of_nothing_is_nothing() -> None:
    assert normal((json.dumps(UP), 1, 1.0, "bad_value"))[0]["what"] == REJECT


GOOD = histogram_column(detailed_fragment({(1, 1): Hist(0, {1: 2.0, 2: 3.0}, 1.0, 4.0)}).details, 1)[0].as_py()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, None),
        ({"schema": 9}, "bad_histogram"),
        ({"schema": None}, "bad_histogram"),
        ({"positive_counts": [1.0]}, "bad_histogram"),
        ({"positive_spans": [{"offset": 1, "length": 2**31 - 1}]}, "bad_histogram"),
        ({"positive_counts": [2.0, -1.0]}, "histogram_negative_bucket_count"),
        ({"count": 7.0}, "histogram_count_mismatch"),
        (
            {"positive_spans": [{"offset": 1, "length": 9_000}], "positive_counts": [0.0] * 9_000},
            "histogram_too_many_buckets",
        ),
    ],
)
def test_a_histogram_that_cannot_be_stored_is_refused_by_name(change: dict[str, object], reason: str | None) -> None:
    rows = (json.dumps(UP), 1, None, None), (json.dumps(UP), 2, None, None)
    found = normal(*rows, histogram=GOOD | change)
    assert [row["reason"] for row in found if row["what"] != SERIES] == [reason] * 2


def test_the_type_of_histograms_is_that_of_the_source() -> None:
    assert DETAILS["histogram"].simpleString() == HISTOGRAM_DDL
