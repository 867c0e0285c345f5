"""Rows with histograms have the fields of Prometheus's API: `histogram` of an instant, `histograms` of a range."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
import pytest

from tsdb.api.prometheus.json import rows
from tsdb.api.prometheus.json.rows import matrix_rows, sample_rows, vector_rows
from tsdb.model.histograms import CUSTOM_BOUNDS, joined_histograms
from tsdb.promql.evaluate.native.histograms import HistogramCells, from_columns
from tsdb.promql.evaluate.vectors.block import Block, Samples
from tsdb.promql.evaluate.vectors.labels import Pool, label_sets
from tsdb.rules.unit_tests.histograms import HistogramValue

EXPONENTIAL = HistogramValue(0, 9, 4.5, 2, 0.75, (), {0: 1, 1: 3, 2: 0}, {0: 3})
CUSTOM = HistogramValue(CUSTOM_BOUNDS, 2, float("nan"), bounds=(1.0, 2.0), positive={0: 1, 2: 1})
EMPTY = HistogramValue()
TEXTS = {
    0: {
        "count": "9",
        "sum": "4.5",
        # The zero bucket covers a part of the buckets beside it.
        "buckets": [[1, "-1", "-0.75", "3"], [3, "-0.75", "0.75", "2"], [0, "0.75", "1", "1"], [0, "1", "2", "3"]],
    },
    1: {"count": "2", "sum": "NaN", "buckets": [[3, "-Inf", "1", "1"], [0, "2", "+Inf", "1"]]},
    2: {"count": "0", "sum": "0"},
}
HISTOGRAMS = from_columns(joined_histograms([value.columns() for value in (EXPONENTIAL, CUSTOM, EMPTY)]))


def block(of: list[list[int]], present: list[list[bool]]) -> Block:
    labels = label_sets(Pool(), [{"__name__": "h", "a": str(row)} for row in range(len(of))])
    values = np.arange(len(of) * len(of[0]), dtype=np.float64).reshape(len(of), -1)
    cells = HistogramCells(HISTOGRAMS, np.array(of, np.int64))
    return Block(labels, values, np.array(present, np.bool_), np.zeros(len(of), np.bool_), cells)


def parsed(pieces: Iterable[memoryview]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(b"[" + b"".join(map(bytes, pieces)) + b"]")
    return found


def test_an_instant_has_a_value_or_a_histogram() -> None:
    found = parsed(vector_rows(block([[0], [-1], [1], [2]], [[True]] * 4), np.array([1500])))
    labels = [{"__name__": "h", "a": str(row)} for row in range(4)]
    assert found == [
        {"metric": labels[0], "histogram": [1.5, TEXTS[0]]},
        {"metric": labels[1], "value": [1.5, "1"]},
        {"metric": labels[2], "histogram": [1.5, TEXTS[1]]},
        {"metric": labels[3], "histogram": [1.5, TEXTS[2]]},
    ]


@pytest.mark.parametrize("piece_bytes", [1, rows.PIECE_BYTES])
def test_a_series_of_a_range_has_its_floats_and_its_histograms(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(rows, "PIECE_BYTES", piece_bytes)
    steps = block([[0, -1, 1, 2], [-1, -1, -1, -1]], [[True, True, True, False], [False, True, False, False]])
    assert parsed(matrix_rows(steps, np.array([-1, 0, 1000, 2000]))) == [
        {
            "metric": {"__name__": "h", "a": "0"},
            "values": [[0, "1"]],
            "histograms": [[-0.001, TEXTS[0]], [1, TEXTS[1]]],
        },
        {"metric": {"__name__": "h", "a": "1"}, "values": [[0, "5"]]},
    ]


def test_samples_of_a_range_vector() -> None:
    cells = HistogramCells(HISTOGRAMS, np.array([2, -1, 0]))
    samples = Samples(
        label_sets(Pool(), [{"a": "1"}, {}]),
        np.array([0, 2, 3]),
        np.array([1000, 2000, 3000]),
        np.array([0.0, 7.0, 0.0]),
        np.zeros(2, np.bool_),
        cells,
    )
    assert parsed(sample_rows(samples)) == [
        {"metric": {"a": "1"}, "values": [[2, "7"]], "histograms": [[1, TEXTS[2]]]},
        {"metric": {}, "histograms": [[3, TEXTS[0]]]},
    ]
