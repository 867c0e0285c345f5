"""Frames: their cuts and their content."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tsdb.answer.answer import AnswerSeries, PackedLabels, RawResult
from tsdb.answer.answer import raw_of as raw_of_pieces
from tsdb.codec.columns.details import SHAPE_BUCKETS_MAX
from tsdb.model.details import SampleDetails, same_details
from tsdb.model.errors import CorruptData
from tsdb.model.histograms import CUSTOM_BOUNDS, HistogramColumns, HistogramShape
from tsdb.v1 import reader_pb2
from tsdb.wire.fields import Fields
from tsdb.wire.select import FRAME_BUCKETS_MAX, FRAME_SAMPLES_MAX, decode_raw, encode_block, raw_frames

GOLDEN = Path(__file__).parents[3] / "golden" / "v1" / "reader"


def raw_of(counts: list[int]) -> RawResult:
    total = sum(counts)
    return RawResult(np.array(counts, np.uint32), np.arange(total, dtype=np.int64), np.arange(total) / 2)


def messages_of(frames: Iterator[Fields]) -> list[reader_pb2.RawFrame]:
    return [reader_pb2.RawFrame.FromString(frame.joined()) for frame in frames]


def test_a_series_block_is_packed_little_endian() -> None:
    labels = PackedLabels(b"abcde", np.array([2, 3], np.uint32))
    block = encode_block(AnswerSeries(3, np.array([1, 2**63], np.uint64), labels))
    assert (block.partition, block.labels) == (3, b"abcde")
    assert block.series_ids == (1).to_bytes(8, "little") + (2**63).to_bytes(8, "little")
    assert block.label_lengths == (2).to_bytes(4, "little") + (3).to_bytes(4, "little")
    assert encode_block(AnswerSeries(0, np.empty(0, np.uint64))).label_lengths == b""


def test_no_samples_are_no_frames() -> None:
    assert list(raw_frames(0, raw_of([]))) == []
    assert list(raw_frames(0, raw_of([0, 0]))) == []


def test_a_series_larger_than_a_frame_goes_on_in_the_next() -> None:
    frames = messages_of(raw_frames(1, raw_of([0, 2, 2 * FRAME_SAMPLES_MAX, 0, 5])))
    counts = [np.frombuffer(frame.counts, "<u4").tolist() for frame in frames]
    assert [frame.first_series for frame in frames] == [1, 2, 2]
    assert counts == [[2, FRAME_SAMPLES_MAX - 2], [FRAME_SAMPLES_MAX], [2, 0, 5]]
    times = np.concatenate([np.frombuffer(frame.ts_ms, "<i8") for frame in frames])
    assert times.tolist() == list(range(2 * FRAME_SAMPLES_MAX + 7))
    assert {frame.partition for frame in frames} == {1}


def test_a_frame_that_ends_with_a_series_leaves_the_next_to_the_next() -> None:
    frames = messages_of(raw_frames(0, raw_of([FRAME_SAMPLES_MAX, 3]), overlay=True))
    assert [(frame.first_series, frame.overlay) for frame in frames] == [(0, True), (1, True)]
    assert np.frombuffer(frames[1].counts, "<u4").tolist() == [3]


def detailed(counts: list[int], seed: int, *, buckets: int, share: float = 0.5) -> RawResult:
    """Samples; some are histograms with `buckets` buckets, some have a start timestamp."""
    rng, raw = np.random.default_rng(seed), raw_of(counts)
    shapes = (
        HistogramShape(3, 0.001, ((0, buckets),), ((-2, 1), (3, 2))),
        HistogramShape(CUSTOM_BOUNDS, positive=((0, 2),), bounds=(0.5, 1.0)),
    )
    where = rng.random(raw.samples) < share
    of = np.full(raw.samples, -1, np.int64)
    of[where] = np.arange(where.sum())
    shape_of = rng.integers(0, 2, int(where.sum())).astype(np.int32)
    lengths = np.array([buckets + 3, 2])[shape_of]
    starts = np.concatenate(([0], np.cumsum(lengths)))
    own = rng.integers(0, 50, int(starts[-1])).astype(np.float64)
    zeros = np.where(shape_of == 0, rng.integers(0, 5, len(shape_of)), 0).astype(np.float64)
    counts_of = np.array([own[a:b].sum() for a, b in pairwise(starts.tolist())]) + zeros
    columns = HistogramColumns(
        shapes,
        shape_of,
        starts,
        own,
        counts_of,
        raw.values[where],
        zeros,
        rng.integers(0, 4, len(shape_of)).astype(np.uint8),
        rng.random(len(shape_of)) < 0.5,
    )
    start_ms = np.where(rng.random(raw.samples) < share, raw.ts_ms - 1000, 0)
    raw.details = SampleDetails(start_ms, columns, of)
    return raw


def rejoined(counts: list[int], frames: list[reader_pb2.RawFrame]) -> RawResult:
    return raw_of_pieces([decode_raw(frame) for frame in frames], len(counts))


@pytest.mark.parametrize(
    ("counts", "buckets", "frames_expected"),
    [([3, 0, 5], 4, 1), ([1, FRAME_SAMPLES_MAX + 9, 4], 2, 2), ([40, 2, 2500], 300, 2), ([120], 8000, 2)],
)
def test_details_come_back_wherever_frames_are_cut(counts: list[int], buckets: int, frames_expected: int) -> None:
    raw = detailed(counts, 1, buckets=buckets)
    frames = messages_of(raw_frames(1, raw))
    assert len(frames) == frames_expected
    found = rejoined(counts, frames)
    assert found.counts.tolist() == counts
    assert found.ts_ms.tolist() == raw.ts_ms.tolist()
    assert same_details(found.details, raw.details)
    sizes = [
        len(one.details.histograms.buckets) for one in map(decode_raw, frames) if one.details and one.details.histograms
    ]
    assert max(sizes) <= FRAME_BUCKETS_MAX


def test_the_widest_histograms_fit_into_frames() -> None:
    raw = detailed([3 * FRAME_SAMPLES_MAX // SHAPE_BUCKETS_MAX], 1, buckets=SHAPE_BUCKETS_MAX - 3, share=1.0)
    for frame in messages_of(raw_frames(1, raw)):
        decode_raw(frame)


def test_a_frame_whose_samples_have_no_details_has_the_bytes_that_it_had() -> None:
    raw, plain = (raw_of([4, FRAME_SAMPLES_MAX, 4]) for _ in range(2))
    raw.details = SampleDetails(np.where(np.arange(raw.samples) < 2, 1, 0))
    last = [frame.joined() for frame in raw_frames(1, raw)][-1]
    assert last == [frame.joined() for frame in raw_frames(1, plain)][-1]


@pytest.mark.parametrize("field", ["start_times", "histograms"])
def test_bad_bytes_of_details_are_corrupt_data(field: str) -> None:
    (good,) = messages_of(raw_frames(1, detailed([4, 3], 2, buckets=5)))
    whole = getattr(good, field)
    refused = 0
    for at in range(len(whole)):
        for flip in (1, 0x80, 0xFF):
            bad = reader_pb2.RawFrame()
            bad.CopyFrom(good)
            setattr(bad, field, whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
            try:
                decode_raw(bad)
            except CorruptData:
                refused += 1
    for bad_bytes in (whole[:-1], whole + b"\0", b"\xff" * 40):
        bad = reader_pb2.RawFrame()
        bad.CopyFrom(good)
        setattr(bad, field, bad_bytes)
        with pytest.raises(CorruptData):
            decode_raw(bad)
    assert refused


def test_a_frame_with_details_has_the_bytes_of_its_golden_file() -> None:
    (frame,) = [one.joined() for one in raw_frames(1, detailed([4, 0, 3], 2, buckets=5))]
    assert frame == (GOLDEN / "raw_frame_with_details.bin").read_bytes()
