"""Native histograms of a result have lines with counts and quantiles, and the JSON of the HTTP API."""

from __future__ import annotations

import io
import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import typer

from support.data.detail_cases import BOUNDS
from tsdb.cli.options.arguments import TimeRange
from tsdb.cli.query.result_output import (
    OutputTarget,
    ResultFormat,
    print_sample_table,
    print_step_table,
    print_value_table,
    write_result,
)
from tsdb.client.query import Kind, QueryResult
from tsdb.model.details import SampleDetails
from tsdb.model.histograms import HistogramColumns
from tsdb.model.labels import canonical_labels

H, F = canonical_labels({"__name__": "h"}), canonical_labels({"__name__": "f"})


def result(kind: Kind, starts: list[int], histogram_of: list[int]) -> QueryResult:
    """The series h and f have a sample a second. Histogram i has 4 (i + 1) observations, i + 1 in each bucket."""
    of = np.array(histogram_of)
    count = max(histogram_of) + 1
    each = np.repeat(np.arange(1.0, count + 1), 4)
    columns = HistogramColumns(
        (BOUNDS,),
        np.zeros(count, np.int32),
        np.arange(0, 4 * count + 1, 4),
        each,
        np.arange(4.0, 4 * count + 1, 4),
        np.arange(1.0, count + 1),
        np.zeros(count),
        np.zeros(count, np.uint8),
        np.zeros(count, np.bool_),
    )
    ts_ms = np.concatenate([1000 * np.arange(end - start) for start, end in itertools.pairwise(starts)])
    values = np.where(of >= 0, columns.sums[np.maximum(of, 0)], 7.5)
    times_ms = 1000 * np.arange(max(np.diff(starts)))
    details = SampleDetails(None, columns, of)
    return QueryResult(kind, [H, F], np.array(starts), ts_ms, values, times_ms, "", (), (), details)


def lines(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    return [line.split() for line in capsys.readouterr().out.splitlines()]


def test_an_instant_has_a_table_of_numbers_and_one_of_histograms(capsys: pytest.CaptureFixture[str]) -> None:
    print_value_table(result("vector", [0, 1, 2], [0, -1]), 0)
    assert lines(capsys) == [
        ["series", "value"],
        ["f", "7.5"],
        ["series", "count", "sum", "p50", "p90", "p99"],
        ["h", "4", "1", "0.5", "2.5", "2.5"],
    ]


def test_steps_have_the_course_of_the_counts(capsys: pytest.CaptureFixture[str]) -> None:
    print_step_table(result("vector", [0, 4, 6], [0, 1, 2, -1, -1, -1]), 1000, 0)
    floats, last, head, histograms = lines(capsys)[1:5]
    assert floats[:4] == ["h", "1", "7.5", "7.5"]
    assert last[:2] == ["f", "2"]
    assert head == ["series", "points", "count", "sum", "p50", "p90", "p99", "spark", "of", "count"]
    assert histograms == ["h", "3", "12", "3", "0.5", "2.5", "2.5", "▁▄█"]


def test_samples_have_the_same_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_sample_table(result("ranges", [0, 2, 3], [0, 1, -1]), TimeRange(0, 1), 0)
    found = lines(capsys)
    assert found[1][:2] == ["f", "1"]
    assert found[3][:4] == ["h", "2", "8", "2"]


def written(tmp_path: Path, of: QueryResult, form: ResultFormat, *, wide: bool = False) -> bytes:
    path = tmp_path / f"found.{form}"
    write_result(of, {"samples": 2}, OutputTarget(form, path, 0, wide))
    return path.read_bytes()


def test_json_has_histograms_as_the_http_api(tmp_path: Path) -> None:
    found = json.loads(written(tmp_path, result("vector", [0, 2, 3], [0, -1, -1]), "json"))
    buckets = [[3, "-Inf", "0.1", "1"], [0, "0.1", "0.5", "1"], [0, "0.5", "2.5", "1"], [0, "2.5", "+Inf", "1"]]
    assert found["series"] == [
        {
            "labels": {"__name__": "h"},
            "ts_ms": [1000],
            "values": [7.5],
            "histograms": [[0, {"count": "4", "sum": "1", "buckets": buckets}]],
        },
        {"labels": {"__name__": "f"}, "ts_ms": [0], "values": [7.5]},
    ]


@pytest.mark.parametrize("wide", [False, True])
def test_parquet_has_a_column_of_structs(tmp_path: Path, wide: bool) -> None:
    table = pq.read_table(io.BytesIO(written(tmp_path, result("vector", [0, 1, 2], [0, -1]), "parquet", wide=wide)))
    assert table["value"].to_pylist() == [None, 7.5]
    struct, none = table["histogram"].to_pylist()
    assert none is None
    assert (struct["count"], struct["positive_counts"]) == (4.0, [1.0] * 4)


def test_csv_refuses_them_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        written(tmp_path, result("vector", [0, 1, 2], [0, -1]), "csv")
    assert "take --output json or parquet" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
