"""Rows of a write into the log: from Arrow batches to requests of the gateway's pipeline, in order and in bounds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.limits import IngestLimits
from spark_backfill.source.columns import ARROW_MAP, ARROW_TS
from spark_backfill.writing.label_column import joined_labels
from spark_backfill.writing.samples.rows import RowBuffer, SampleBatch, whole_rows

PAIRS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.text(max_size=3)), max_size=3)


def batch(rows: Sequence[tuple[object, int | None, float | None]]) -> pa.RecordBatch:
    labels, times, values = zip(*rows, strict=True)
    times_us = pa.array([None if ms is None else ms * 1000 for ms in times], pa.int64()).cast(ARROW_TS)
    arrays = [pa.array(labels, ARROW_MAP), times_us, pa.array(values, pa.float64(), from_pandas=False)]
    return pa.RecordBatch.from_arrays(arrays, names=["labels", "ts", "value"])


@given(st.lists(st.none() | PAIRS, max_size=8), st.integers(0, 8))
def test_labels_are_joined_as_a_sender_would_join_them(
    rows: list[list[tuple[str, str | None]] | None], cut: int
) -> None:
    def joined(pairs: list[tuple[str, str | None]] | None) -> bytes | None:
        if pairs is None or any(value is None for _, value in pairs):
            return None
        return b"\xff".join(text.encode() for pair in pairs for text in pair if text is not None)

    column = pa.array(rows, ARROW_MAP)[cut:]
    assert joined_labels(column).to_pylist() == [joined(pairs) for pairs in rows[cut:]]


def test_a_separator_in_a_label_makes_no_second_label() -> None:
    """Spark can carry bytes that are not UTF-8 as text."""
    texts = pa.Array.from_buffers(pa.string(), 1, pa.array([b"x\xffjob\xffevil"], pa.binary()).buffers())
    column = pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["a"]), texts)
    assert joined_labels(column).to_pylist() == [None]


def test_rows_with_nulls_are_left_out_and_counted_once_by_their_first_fault() -> None:
    good = [("__name__", "m")]
    rows = [
        (good, 1, 1.0),
        (None, None, 1.0),
        ([("a", None)], 2, None),
        (good, None, None),
        (good, 3, None),
        (good, 4, float("nan")),
    ]
    found = whole_rows(batch(rows))
    assert found.refused == {"null_labels": 1, "labels_malformed": 1, "null_timestamp": 1, "null_value": 1}
    assert found.batch.column("ts").cast(pa.int64()).to_pylist() == [1000, 4000]
    assert found.joined.to_pylist() == [b"__name__\xffm"] * 2


def test_requests_keep_the_order_of_each_series_and_all_bits() -> None:
    rng = np.random.default_rng(5)
    buffer = RowBuffer()
    expected: dict[bytes, list[tuple[int, int]]] = {}
    for _ in range(4):
        names, bits = rng.integers(0, 3, 50), rng.integers(0, 1 << 63, 50, np.uint64)
        values = bits.view(np.float64).tolist()
        made = batch(
            [([("n", str(name))], at, value) for at, (name, value) in enumerate(zip(names, values, strict=True))]
        )
        found = whole_rows(made)
        buffer.add(found.batch, found.joined)
        kept = np.array(values).view("u8").tolist()
        for at, name in enumerate(names):
            expected.setdefault(b"n\xff%d" % name, []).append((at, kept[at]))
    rows = buffer.drain()
    assert len(buffer.drain()) == 0
    request = rows.by_series()
    for row in range(len(request)):
        part, label = slice(request.starts[row], request.starts[row + 1]), request.labels_of(row)
        bits_of = request.values[part].view("u8").tolist()
        assert list(zip(request.ts_ms[part].tolist(), bits_of, strict=True)) == expected.pop(label)
    assert not expected
    alone = rows.each_alone()
    assert [alone.labels_of(row) for row in range(len(alone))] == [rows.labels[code] for code in rows.code]


@pytest.mark.parametrize("limits", [IngestLimits(samples_max=7), IngestLimits(request_bytes_max=200), IngestLimits()])
def test_pieces_are_requests_within_the_limits_and_all_rows_in_order(limits: IngestLimits) -> None:
    rows = SampleBatch([b"a" * 10, b"b" * 100], np.arange(50) % 2, np.arange(50), np.arange(50.0))
    pieces = list(rows.pieces(limits))
    assert np.concatenate([piece.ts_ms for piece in pieces]).tolist() == list(range(50))
    for piece in pieces:
        assert len(piece) == 1 or (
            piece.each_alone().nbytes <= limits.request_bytes_max and len(piece) <= limits.samples_max
        )
    assert (len(pieces) == 1) == (limits == IngestLimits())
