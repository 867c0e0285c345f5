"""Normal rows: each raw row becomes a sample or a reject, and each series is announced once an epoch."""

from __future__ import annotations

import json

import pyarrow as pa

from spark_backfill.jobs.imports.normal_rows import REJECT, SAMPLE, SERIES, Normalize
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
        ("problem", pa.string()),
        ("shown", pa.string()),
    ]
)


def normal(*rows: tuple[object, object, object, object]) -> list[dict[str, object]]:
    columns = zip(*((*row, None) for row in rows), strict=True)
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
