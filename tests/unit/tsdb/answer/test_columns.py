"""Frames of one partition become arrays; frames that contradict themselves are corrupt, whatever they claim."""

from __future__ import annotations

import numpy as np
import pytest

from tsdb.answer.answer import (
    JOINED_SAMPLES_MAX,
    AnswerBody,
    AnswerSeries,
    JoinedSamples,
    PackedLabels,
    PartitionAnswer,
    RawResult,
)
from tsdb.answer.columns import SAMPLE_BYTES, PartitionColumns, decode_partitions, joined_body, joined_series
from tsdb.codec.columns.columns import encode_times, encode_values
from tsdb.model.details import SampleDetails
from tsdb.model.errors import CorruptData
from tsdb.model.histograms import joined_histograms
from tsdb.ops.cores import LARGE_BYTES
from tsdb.rules.unit_tests.histograms import HistogramValue
from tsdb.v1 import reader_pb2
from tsdb.wire.select import decode_columns, decode_raw

SamplesBySeries = dict[int, tuple[list[int], list[float]]]
"""{series index: (times relative to the slice, values)}."""


def frame(start_ms: int, columns: SamplesBySeries) -> reader_pb2.ColumnsFrame:
    """Columns of a slice, each with a separate axis."""
    axes = [encode_times(np.array(times, np.int64)) for times, _ in columns.values()]
    data = [encode_values(np.array(values, np.float64)) for _, values in columns.values()]
    return reader_pb2.ColumnsFrame(
        series_index=u32(*columns),
        column_lengths=u32(*map(len, data)),
        axis_index=u32(*range(len(columns))),
        axis_base_ms=np.full(len(columns), start_ms, np.int64).tobytes(),
        axis_lengths=u32(*map(len, axes)),
        axis_counts=u32(*(len(times) for times, _ in columns.values())),
        axes=b"".join(axes),
        data=b"".join(data),
    )


def overlay(first: int, runs: list[tuple[list[int], list[float]]]) -> reader_pb2.RawFrame:
    times = [ts for run, _ in runs for ts in run]
    values = [value for _, run in runs for value in run]
    return reader_pb2.RawFrame(
        first_series=first,
        counts=u32(*(len(run) for run, _ in runs)),
        ts_ms=np.array(times, np.int64).tobytes(),
        values=np.array(values, np.float64).tobytes(),
        overlay=True,
    )


def u32(*values: int) -> bytes:
    return np.array(values, np.uint32).tobytes()


def part_of(series: int, columns: list[reader_pb2.ColumnsFrame], over: list[reader_pb2.RawFrame]) -> PartitionColumns:
    """The frames as a message carries them, decoded."""
    return PartitionColumns(series, list(map(decode_columns, columns)), list(map(decode_raw, over)))


def decoded(
    series: int,
    columns: list[reader_pb2.ColumnsFrame],
    over: list[reader_pb2.RawFrame],
    start_ms: int = 0,
    end_ms: int = 10_000,
) -> list[list[tuple[int, float]]]:
    """[(ts, value), ...] of each series."""
    return decoded_parts([part_of(series, columns, over)], start_ms, end_ms)


def decoded_parts(
    parts: list[PartitionColumns], start_ms: int = 0, end_ms: int = 10_000
) -> list[list[tuple[int, float]]]:
    """See `decoded`; the samples of several partitions."""
    counts, ts_ms, values = decode_partitions(parts, start_ms, end_ms)
    assert len(counts) == sum(part.series for part in parts)
    assert counts.sum() == len(ts_ms) == len(values)
    pairs = list(zip(ts_ms.tolist(), values.tolist(), strict=True))
    ends = np.cumsum(counts)
    return [pairs[end - count : end] for count, end in zip(counts, ends, strict=True)]


def test_columns_are_trimmed_to_the_range_and_joined_in_time() -> None:
    later = frame(2000, {1: ([0, 10], [5.0, 6.0])})
    earlier = frame(1000, {0: ([5], [1.0]), 1: ([0, 10, 20], [2.0, 3.0, 4.0])})
    assert decoded(3, [earlier, later], [], 1010, 2010) == [[], [(1010, 3.0), (1020, 4.0), (2000, 5.0)], []]


def test_a_frame_may_hold_the_columns_of_several_slices() -> None:
    one, two = frame(1000, {0: ([0, 10], [1.0, 2.0])}), frame(2000, {0: ([5], [3.0])})
    both = reader_pb2.ColumnsFrame(
        series_index=one.series_index + two.series_index,
        column_lengths=one.column_lengths + two.column_lengths,
        axis_index=u32(0, 1),
        axis_base_ms=one.axis_base_ms + two.axis_base_ms,
        axis_lengths=one.axis_lengths + two.axis_lengths,
        axis_counts=one.axis_counts + two.axis_counts,
        axes=one.axes + two.axes,
        data=one.data + two.data,
    )
    assert decoded(1, [both], []) == [[(1000, 1.0), (1010, 2.0), (2005, 3.0)]]


def test_the_overlay_wins_at_equal_timestamps_and_fills_in_the_rest() -> None:
    columns = [frame(1000, {0: ([0, 10, 20], [1.0, 2.0, 3.0])})]
    over = [overlay(0, [([995, 1010, 1015, 1030], [-1.0, -2.0, -3.0, -4.0])])]
    want = [(995, -1.0), (1000, 1.0), (1010, -2.0), (1015, -3.0), (1020, 3.0), (1030, -4.0)]
    assert decoded(1, columns, over) == [want]


def test_an_overlay_series_may_go_on_in_the_next_frame() -> None:
    over = [overlay(0, [([1], [1.0]), ([1, 2], [2.0, 3.0])]), overlay(1, [([3], [4.0]), ([1], [5.0])])]
    assert decoded(3, [], over) == [[(1, 1.0)], [(1, 2.0), (2, 3.0), (3, 4.0)], [(1, 5.0)]]


def test_nothing_is_nothing() -> None:
    assert decoded(2, [], []) == [[], []]
    assert decoded(0, [], []) == []


def test_partitions_follow_each_other_without_gaps() -> None:
    one = part_of(
        2, [frame(1000, {0: ([0, 10], [1.0, 2.0]), 1: ([5], [3.0])})], [overlay(0, [([1000, 1010], [-1.0, -2.0])])]
    )
    none = part_of(1, [], [])
    other = part_of(1, [frame(2000, {0: ([0, 10, 20], [4.0, 5.0, 6.0])})], [overlay(0, [([2010], [-5.0])])])
    last = part_of(1, [], [overlay(0, [([7], [7.0])])])
    want = [
        [(1000, -1.0), (1010, -2.0)],
        [(1005, 3.0)],
        [],
        [(2000, 4.0), (2010, -5.0), (2020, 6.0)],
        [(7, 7.0)],
    ]
    assert decoded_parts([one, none, other, last]) == want
    assert decoded_parts([]) == []


def test_a_large_answer_decodes_as_its_partitions_do() -> None:
    rng = np.random.default_rng(3)
    times = np.arange(LARGE_BYTES // SAMPLE_BYTES // 4)
    parts = [
        part_of(2, [frame(0, {n: (times.tolist(), rng.normal(size=len(times)).tolist()) for n in (0, 1)})], [])
        for _ in range(4)
    ]
    counts, ts_ms, values = decode_partitions(parts, 10, 1 << 40)
    alone = [decode_partitions([part], 10, 1 << 40) for part in parts]
    assert counts.tolist() == [count for found, _, _ in alone for count in found.tolist()]
    assert np.array_equal(ts_ms, np.concatenate([found for _, found, _ in alone]))
    assert np.array_equal(values, np.concatenate([found for _, _, found in alone]))


def test_memory_is_admitted_before_it_is_taken() -> None:
    def refuse(size: int) -> None:
        raise MemoryError(size)

    part = part_of(1, [frame(1000, {0: ([0, 10], [1.0, 2.0])})], [overlay(0, [([1005], [3.0])])])
    with pytest.raises(MemoryError, match=str(3 * SAMPLE_BYTES)):
        decode_partitions([part], 0, 10_000, refuse)


BAD_FRAMES = {
    "series beyond the block": lambda f: setattr(f, "series_index", u32(0, 2)),
    "axis beyond the axes": lambda f: setattr(f, "axis_index", u32(0, 2)),
    "fewer lengths than columns": lambda f: setattr(f, "column_lengths", u32(1)),
    "lengths beyond the data": lambda f: setattr(f, "data", f.data[:-1]),
    "lengths beyond the axes": lambda f: setattr(f, "axes", f.axes + b"x"),
    "bases for other axes": lambda f: setattr(f, "axis_base_ms", f.axis_base_ms + bytes(8)),
    "counts for other axes": lambda f: setattr(f, "axis_counts", u32(2)),
    "an index of odd length": lambda f: setattr(f, "series_index", f.series_index + b"x"),
    "one series twice": lambda f: setattr(f, "series_index", u32(0, 0)),
    "an axis of millions": lambda f: setattr(f, "axis_counts", u32(2, (1 << 24) + 1)),
    "a count that the axis has not": lambda f: setattr(f, "axis_counts", u32(1, 2)),
}


@pytest.mark.parametrize("spoil", BAD_FRAMES.values(), ids=BAD_FRAMES.keys())
def test_a_frame_that_contradicts_itself_is_corrupt(spoil: object) -> None:
    good = frame(1000, {0: ([0, 10], [1.0, 2.5]), 1: ([0, 11], [1.0, 2.0])})
    assert callable(spoil)
    spoil(good)
    with pytest.raises(CorruptData) as caught:
        decoded(2, [good], [])
    assert caught.value.reason in ("bad_columns", "answer_malformed")


@pytest.mark.parametrize(
    "bad",
    [
        overlay(0, [([2, 1], [1.0, 2.0])]),
        overlay(0, [([1, 1], [1.0, 2.0])]),
        overlay(0, [([10_000], [1.0])]),
        overlay(0, [([1], [1.0]), ([1], [1.0]), ([1], [1.0])]),
        reader_pb2.RawFrame(counts=u32(2), ts_ms=bytes(8), values=bytes(8)),
        reader_pb2.RawFrame(counts=u32(1), ts_ms=bytes(8), values=bytes(7)),
        reader_pb2.RawFrame(counts=u32(1), ts_ms=bytes(8), values=b""),
    ],
    ids=["descends", "repeats", "out of range", "too many series", "too few samples", "odd bytes", "no values"],
)
def test_an_overlay_that_contradicts_itself_is_corrupt(bad: reader_pb2.RawFrame) -> None:
    with pytest.raises(CorruptData):
        decoded(2, [], [bad])


def test_slices_that_overlap_are_corrupt() -> None:
    with pytest.raises(CorruptData, match="do not ascend"):
        decoded(1, [frame(1000, {0: ([0, 10], [1.0, 2.0])}), frame(1005, {0: ([0], [3.0])})], [])


def test_any_flipped_byte_gives_an_answer_or_corrupt_data_and_nothing_else() -> None:
    good = frame(1000, {0: ([0, 10, 20], [1.0, 2.5, 0.1]), 1: ([0, 10, 20], [7.0, 8.0, 9.5])})
    for name in (
        "series_index",
        "column_lengths",
        "axis_index",
        "axis_base_ms",
        "axis_lengths",
        "axis_counts",
        "axes",
        "data",
    ):
        whole = getattr(good, name)
        for at in range(len(whole)):
            for flip in (1, 0x80, 0xFF):
                bad = reader_pb2.ColumnsFrame()
                bad.CopyFrom(good)
                setattr(bad, name, whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
                try:
                    decoded(2, [bad], [])
                except CorruptData:
                    continue


@pytest.mark.parametrize("samples", [JOINED_SAMPLES_MAX, JOINED_SAMPLES_MAX + 1])
def test_samples_that_a_reader_gets_are_its_own(samples: int) -> None:
    times, none = np.arange(samples, dtype=np.int64), np.empty(0, np.int64)
    overlay = RawResult(np.array([samples], np.uint32), times, times.astype(np.float64))
    series = AnswerSeries(0, np.array([1], np.uint64), PackedLabels.of([b"a"]))
    joined = JoinedSamples(np.zeros(2, np.int64), none, np.empty(0), overlay)
    body = AnswerBody([PartitionAnswer(0, series, overlay=[overlay])], None, 0, joined)
    found = joined_body(body, 0, samples, lambda size: None)
    assert found.ts_ms.tolist() == times.tolist()
    assert not np.shares_memory(found.ts_ms, times)
    assert not np.shares_memory(found.values, overlay.values)


def details_of(numbers: list[int]) -> SampleDetails:
    """A start timestamp for each sample, and a histogram with that count for every second one. 0: neither."""
    starts = np.array(numbers, np.int64)
    of = np.full(len(numbers), -1, np.int64)
    wanted = np.flatnonzero(starts % 2 == 1)
    of[wanted] = np.arange(len(wanted))
    values = [HistogramValue(0, float(number), 1.0).columns() for number in starts[wanted].tolist()]
    return SampleDetails(starts, joined_histograms(values) if values else None, of if values else None)


def numbers_of(details: SampleDetails | None, samples: int) -> list[tuple[int, float]]:
    """(start timestamp, count of the histogram or 0) of each sample."""
    if details is None:
        return [(0, 0.0)] * samples
    starts = np.zeros(samples, np.int64) if details.start_ms is None else details.start_ms
    counts = np.zeros(samples)
    if details.histograms is not None and details.histogram_of is not None:
        where = details.histogram_of >= 0
        counts[where] = details.histograms.counts[details.histogram_of[where]]
    return list(zip(starts.tolist(), counts.tolist(), strict=True))


def overlaid(first: int, runs: list[list[tuple[int, int]]]) -> RawResult:
    """An overlay of (time, number of its details) of each series, with details where a number is not 0."""
    flat = [pair for run in runs for pair in run]
    numbers = [number for _, number in flat]
    return RawResult(
        np.array(list(map(len, runs)), np.uint32),
        np.array([at for at, _ in flat], np.int64),
        np.array(numbers, np.float64),
        first_series=first,
        details=details_of(numbers) if any(numbers) else None,
    )


def test_details_stay_with_the_samples_of_overlays() -> None:
    columns = decode_columns(frame(1000, {0: ([0, 10, 20], [1.0, 2.0, 3.0]), 2: ([5, 15], [4.0, 5.0])}))
    parts = [
        PartitionAnswer(
            0,
            AnswerSeries(0, np.array([1, 2, 3], np.uint64), PackedLabels.of([b"a", b"b", b"c"])),
            [columns],
            # The second series goes on in the next frame.
            [overlaid(0, [[(1010, 7), (1012, 0)], [(1000, 8)]]), overlaid(1, [[(1001, 0)], [(1015, 9)]])],
        ),
        PartitionAnswer(
            1, AnswerSeries(1, np.array([9], np.uint64), PackedLabels.of([b"d"])), [], [overlaid(0, [[(1003, 5)]])]
        ),
    ]
    found = joined_series(parts, 1000, 1020)
    assert found.starts.tolist() == [0, 3, 5, 7, 8]
    assert found.ts_ms.tolist() == [1000, 1010, 1012, 1000, 1001, 1005, 1015, 1003]
    expected = [(0, 0.0), (7, 7.0), (0, 0.0), (8, 0.0), (0, 0.0), (0, 0.0), (9, 9.0), (5, 5.0)]
    assert numbers_of(found.details, 8) == expected
    without = [
        PartitionAnswer(part.partition, part.series, part.columns, [overlaid(0, [[(1001, 0)]])]) for part in parts
    ]
    assert joined_series(without, 1000, 1020).details is None


def test_details_of_raw_answers_follow_their_series() -> None:
    pieces = [overlaid(0, [[(1, 3)], [(2, 4)]]), overlaid(1, [[(3, 0), (4, 5)]])]
    series = AnswerSeries(0, np.array([1, 2], np.uint64), PackedLabels.of([b"a", b"b"]))
    found = joined_series([PartitionAnswer(0, series, raw=pieces)], 0, 10)
    assert (found.starts.tolist(), found.ts_ms.tolist()) == ([0, 1, 4], [1, 2, 3, 4])
    assert numbers_of(found.details, 4) == [(3, 3.0), (4, 0.0), (0, 0.0), (5, 5.0)]


@pytest.mark.parametrize("start_ms", [0, 1005])
def test_details_of_a_body_that_is_trimmed(start_ms: int) -> None:
    overlay = overlaid(0, [[(1000, 3), (1010, 5)], [(1012, 7)]])
    joined = JoinedSamples(np.array([0, 2, 3]), np.array([1001, 1010, 1011]), np.array([1.0, 2.0, 3.0]), overlay)
    series = AnswerSeries(0, np.array([1, 2], np.uint64), PackedLabels.of([b"a", b"b"]))
    found = joined_body(AnswerBody([PartitionAnswer(0, series)], None, 0, joined), start_ms, 1012, lambda size: None)
    expected = [(1000, 3), (1001, 0), (1010, 5), (1011, 0)]
    kept = [(at, number) for at, number in expected if at >= start_ms]
    assert found.ts_ms.tolist() == [at for at, _ in kept]
    assert [start for start, _ in numbers_of(found.details, len(kept))] == [number for _, number in kept]


def test_a_split_result_has_the_details_of_its_series() -> None:
    whole = overlaid(0, [[(1, 3)], [(2, 0)], [(3, 5), (4, 6)]])
    one, other, third = whole.split(np.array([0, 1, 2, 3]))
    assert numbers_of(one.details, 1) == [(3, 3.0)]
    assert other.details is None
    assert numbers_of(third.details, 2) == [(5, 5.0), (6, 0.0)]
    assert whole.payload_bytes > overlaid(0, [[(1, 0)], [(2, 0)], [(3, 0), (4, 0)]]).payload_bytes
