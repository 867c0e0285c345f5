"""A Parquet file with histograms and start timestamps is written as the client and exports made it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.data.detail_cases import histograms
from tsdb.cli.samples.rows import SampleRows, join_rows
from tsdb.cli.samples.source import read_rows
from tsdb.client.tables import samples_arrow
from tsdb.codec.histogram_rows import histogram_column, start_column
from tsdb.model.details import SampleDetails, same_details
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import canonical_labels

LABELS = canonical_labels({"__name__": "h"})
COLUMNS = histograms([0, 1, 4, 2], 1)
OF = np.array([0, -1, 1, 2, 3])
STARTS = np.array([0, 500, 500, 0, 900])
DETAILS = SampleDetails(STARTS, COLUMNS, OF)
VALUES = np.where(OF >= 0, COLUMNS.sums[np.maximum(OF, 0)], 7.5)
TS_MS = 1_700_000_000_000 + np.array([5, 4, 3, 2, 1])


def read(table: pa.Table) -> SampleRows:
    data = io.BytesIO()
    pq.write_table(table, data)
    data.seek(0)
    return join_rows(list(read_rows(data, "x.parquet", "parquet", now_ms=0)))


def client_table() -> pa.Table:
    return samples_arrow([LABELS], np.array([0, 5]), TS_MS, VALUES, DETAILS, start_times=True)


def export_table() -> pa.Table:
    plain = samples_arrow([LABELS], np.array([0, 5]), TS_MS, VALUES, DETAILS)
    columns = {name: plain[name] for name in ("labels", "ts_ms", "value")}
    return pa.table(columns | {"histogram": histogram_column(DETAILS, 5), "start_ts": start_column(DETAILS, 5)})


@pytest.mark.parametrize("table", [client_table(), export_table()])
def test_details_are_read_and_stay_with_their_samples(table: pa.Table) -> None:
    rows = read(table)
    assert same_details(rows.details, DETAILS)
    assert (rows.values.view(np.int64) == VALUES.view(np.int64)).all()
    ordered = rows.by_time()
    assert ordered.ts_ms.tolist() == sorted(TS_MS.tolist())
    assert same_details(ordered.details, DETAILS.take(np.arange(5)[::-1]))
    assert ordered.batch(1, 4).samples == 3


def test_files_of_numbers_have_no_details() -> None:
    assert read(client_table().select(["labels", "ts_ms", "value"]).slice(1, 1)).details is None


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"value": pa.array([1.0] * 5)}, "row 1: a value and a histogram"),
        ({"value": pa.nulls(5, pa.float64())}, "row 2: no value"),
        ({"histogram": pa.array([{"schema": 0}] * 5)}, "column histogram lacks count"),
    ],
)
def test_rows_without_a_meaning_are_refused_by_name(change: dict[str, Any], text: str) -> None:
    table = client_table()
    for name, column in change.items():
        table = table.set_column(table.column_names.index(name), name, column)
    with pytest.raises(InvalidRequest, match=text):
        read(table)


def test_a_histogram_without_a_meaning_is_refused_by_name() -> None:
    rows = client_table()["histogram"].to_pylist()
    rows[0]["positive_counts"] = [1.0]
    table = client_table()
    bad = pa.array(rows, table.schema.field("histogram").type)
    with pytest.raises(InvalidRequest, match="counts do not fit the spans"):
        read(table.set_column(3, "histogram", bad))
