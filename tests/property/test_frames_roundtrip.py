"""The client decodes the samples that a head gathered, wherever the frames were cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from tsdb.answer.answer import AnswerSeries, RawResult, SealedColumns
from tsdb.client.select import SelectAnswer
from tsdb.codec.columns.columns import encode_times, encode_values
from tsdb.v1 import reader_pb2
from tsdb.wire.select import FRAME_BYTES_MAX, FRAME_SAMPLES_MAX, column_frames, encode_block, raw_frames

# Sizes around that of a frame, so that cuts fall within a series, between two series, and on the last one.
counts = st.lists(
    st.one_of(st.just(0), st.integers(1, 40), st.integers(FRAME_SAMPLES_MAX - 50, 2 * FRAME_SAMPLES_MAX + 50)),
    max_size=8,
)


def raw_of(samples: list[int], seed: int, *, with_orders: bool) -> RawResult:
    """A result with times that ascend within each series."""
    rng = np.random.default_rng(seed)
    total = sum(samples)
    ts_ms = np.concatenate(
        [np.empty(0, np.int64), *(np.arange(n, dtype=np.int64) * 3 + i for i, n in enumerate(samples))]
    )
    return RawResult(
        np.array(samples, np.uint32),
        ts_ms,
        rng.integers(0, 2**63, total).view(np.float64),
        rng.integers(-1, 1000, total) if with_orders else None,
    )


def answer(ids: np.ndarray, start_ms: int, end_ms: int, messages: list[reader_pb2.SelectResponse]) -> SelectAnswer:
    """A client's reader of a header and these messages."""
    reader = SelectAnswer(start_ms, end_ms)
    reader.add(reader_pb2.SelectResponse(header=reader_pb2.SelectHeader(), series=[encode_block(AnswerSeries(0, ids))]))
    for message in messages:
        # Encoded and parsed again, as over the wire.
        reader.add(reader_pb2.SelectResponse.FromString(message.SerializeToString()))
    return reader


@given(counts, st.integers(0, 2**32), st.booleans())
@settings(max_examples=examples(60))
def test_raw_samples_come_back_in_place_and_bit_for_bit(samples: list[int], seed: int, with_orders: bool) -> None:
    raw = raw_of(samples, seed, with_orders=with_orders)
    frames = [reader_pb2.RawFrame.FromString(frame.joined()) for frame in raw_frames(0, raw)]
    assert all(len(frame.ts_ms) <= 8 * FRAME_SAMPLES_MAX for frame in frames)
    assert len(frames) == -(-raw.samples // FRAME_SAMPLES_MAX)
    ids = np.arange(len(samples), dtype=np.uint64)
    reader = answer(ids, 0, 1 << 40, [reader_pb2.SelectResponse(raw=[frame]) for frame in frames])
    trailer = reader_pb2.SelectTrailer(series=len(samples), samples=raw.samples)
    reader.add(reader_pb2.SelectResponse(trailer=trailer))
    result = reader.finish()
    held = [n for n in samples if n]
    assert result.series_ids.tolist() == [i for i, n in enumerate(samples) if n]
    assert np.diff(result.starts).tolist() == held
    np.testing.assert_array_equal(result.ts_ms, raw.ts_ms)
    np.testing.assert_array_equal(result.values.view(np.int64), raw.values.view(np.int64))
    if with_orders and raw.samples:
        np.testing.assert_array_equal(result.orders, raw.orders)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans()), min_size=1, max_size=30),
    st.integers(0, 2**32),
)
@settings(max_examples=examples(25))
def test_columns_come_back_wherever_their_frames_were_cut(shapes: list[tuple[int, int, bool]], seed: int) -> None:
    """Each shape is a column: its axis, and either noise of a large part of a frame or a constant."""
    rng = np.random.default_rng(seed)
    axes = [np.sort(rng.choice(90_000, 100 if axis % 2 else 40_000, replace=False)) for axis in range(4)]
    encoded_axes = [encode_times(axis) for axis in axes]
    # In the order of data the axes ascend, as in slices.
    shapes = sorted(shapes)
    values = [rng.normal(size=len(axes[axis])) if noisy else np.full(len(axes[axis]), 1.5) for axis, _, noisy in shapes]
    encoded = [encode_values(column) for column in values]
    columns = SealedColumns(
        samples=sum(map(len, values)),
        series_index=np.arange(len(shapes), dtype=np.uint32),
        column_lengths=np.array(list(map(len, encoded)), np.uint32),
        axis_index=np.array([axis for axis, _, _ in shapes], np.uint32),
        axis_base_ms=np.arange(4, dtype=np.int64) * 100_000,
        axis_lengths=np.array(list(map(len, encoded_axes)), np.uint32),
        axis_counts=np.array(list(map(len, axes)), np.uint32),
        axes=np.frombuffer(b"".join(encoded_axes), np.uint8),
        data=np.frombuffer(b"".join(encoded), np.uint8),
    )
    frames = [reader_pb2.ColumnsFrame.FromString(frame.joined()) for frame in column_frames(0, columns)]
    assert all(len(frame.data) <= max(FRAME_BYTES_MAX, max(map(len, encoded))) for frame in frames)
    ids = np.arange(len(shapes), dtype=np.uint64)
    messages = [reader_pb2.SelectResponse(columns=[frame]) for frame in frames]
    reader = answer(ids, 0, 1 << 40, messages)
    reader.add(reader_pb2.SelectResponse(trailer=reader_pb2.SelectTrailer(series=len(shapes), samples=columns.samples)))
    result = reader.finish()
    assert np.diff(result.starts).tolist() == list(map(len, values))
    want_ts = np.concatenate([axes[axis] + axis * 100_000 for axis, _, _ in shapes])
    np.testing.assert_array_equal(result.ts_ms, want_ts)
    np.testing.assert_array_equal(result.values.view(np.int64), np.concatenate(values).view(np.int64))
