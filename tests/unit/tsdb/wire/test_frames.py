"""Frames: their cuts and their content."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tsdb.answer.answer import AnswerSeries, PackedLabels, RawResult
from tsdb.v1 import reader_pb2
from tsdb.wire.fields import Fields
from tsdb.wire.select import FRAME_SAMPLES_MAX, encode_block, raw_frames


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
