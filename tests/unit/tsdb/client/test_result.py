"""A result is the same samples as numpy, Arrow, pandas and by iteration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from support.data.detail_cases import histograms
from tsdb.client.result import SelectResult
from tsdb.model.details import SampleDetails
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import canonical_labels

BITS = np.array([0x7FF0000000000002, 1 << 63, 0x7FF0000000000000], np.uint64)  # A NaN payload, -0.0, +Inf.
UP = canonical_labels({"job": "b", "__name__": "up"})
DOWN = canonical_labels({"job": "é", "__name__": "down"})


def result(labels: tuple[bytes, ...] = (UP, DOWN)) -> SelectResult:
    return SelectResult(
        series_ids=np.array([7, 3], np.uint64),
        canonical=labels,
        starts=np.array([0, 2, 3]),
        ts_ms=np.array([10, 20, 10]),
        values=BITS.view(np.float64),
        orders=None,
        partitions=[],
    )


def test_series_are_views_of_the_flat_arrays() -> None:
    found = result()
    assert [series.series_id for series in found.series] == [7, 3]
    assert found[-1].labels == {"__name__": "down", "job": "é"}
    assert found[0].ts_ms.tolist() == [10, 20]
    assert np.shares_memory(found[0].values, found.values)
    with pytest.raises(IndexError, match="series 2 of 2"):
        found[2]


def test_iteration_gives_labels_times_and_values() -> None:
    rows = [(labels["__name__"], ts_ms.tolist(), len(values)) for labels, ts_ms, values in result()]
    assert rows == [("up", [10, 20], 2), ("down", [10], 1)]


def test_arrow_has_a_row_a_sample_with_the_same_bits() -> None:
    table = result().to_arrow()
    assert table.column_names == ["labels", "ts_ms", "value"]
    assert table["labels"].to_pylist() == ['{"__name__":"up","job":"b"}'] * 2 + ['{"__name__":"down","job":"é"}']
    assert str(table.schema.field("labels").type).startswith("dictionary<values=string, indices=int32")
    assert table["value"].null_count == 0
    assert (table["value"].to_numpy().view(np.uint64) == BITS).all()


def test_pandas_has_the_same_rows() -> None:
    frame = result().to_pandas()
    assert list(frame.columns) == ["__name__", "job", "ts_ms", "value"]
    assert frame["__name__"].tolist() == ["up", "up", "down"]
    assert frame.groupby("job", observed=True)["ts_ms"].max().to_dict() == {"b": 20, "é": 10}
    assert (frame["value"].to_numpy().view(np.uint64) == BITS).all()
    assert frame["ts_ms"].tolist() == [10, 20, 10]


def test_labels_are_columns_also_where_a_series_lacks_them_or_names_collide() -> None:
    odd = canonical_labels({"__name__": "odd", "value": "v", "ts_ms": "t"})
    frame = result((UP, odd)).to_pandas()
    assert list(frame.columns) == ["__name__", "job", "label_ts_ms", "label_value", "ts_ms", "value"]
    assert frame["job"].isna().tolist() == [False, False, True]
    assert frame["label_value"].dropna().tolist() == ["v"]
    assert str(frame["job"].dtype) == "category"


def test_an_empty_result_is_an_empty_table() -> None:
    empty = SelectResult(
        np.empty(0, np.uint64), (), np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0), None, ()
    )
    assert empty.to_arrow().num_rows == 0
    assert empty.to_pandas().empty
    assert empty.to_arrow().schema == result().to_arrow().schema


def test_a_table_without_labels_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="labels=True"):
        result((b"", b"")).to_arrow()


def test_tables_have_histograms_as_structs_and_start_times_where_asked() -> None:
    columns = histograms([2], 1)
    of = np.array([-1, 0, -1])
    values = np.where(of >= 0, columns.sums[0], result().values)
    found = replace(result(), values=values, details=SampleDetails(np.array([1, 5, 0]), columns, of))
    table = found.to_arrow(start_times=True)
    assert table.column_names == ["labels", "ts_ms", "value", "histogram", "start_ms"]
    assert table["value"].is_null().to_pylist() == [False, True, False]
    assert table["value"].to_pylist()[2] == np.inf
    assert table["start_ms"].to_pylist() == [1, 5, None]
    none, struct, _ = table["histogram"].to_pylist()
    assert none is None
    assert (struct["schema"], struct["custom_bounds"], struct["count"]) == (-53, [0.1, 0.5, 2.5], columns.counts[0])
    frame = found.to_pandas(start_times=True)
    assert frame.columns.tolist() == ["__name__", "job", "ts_ms", "value", "histogram", "start_ms"]
    assert frame["histogram"][1] == struct
    assert frame["start_ms"].tolist()[:2] == [1, 5]
    assert frame["value"].isna().tolist() == [True, True, False]  # The first value is a NaN.


def test_start_times_without_any_are_a_column_of_nulls() -> None:
    assert result().to_arrow(start_times=True)["start_ms"].to_pylist() == [None] * 3
    assert result().to_arrow().column_names == ["labels", "ts_ms", "value"]
    replace(result(), details=SampleDetails(np.array([1, 0, 0]))).to_arrow()
