"""Each spec and each answer of a read comes back from its messages as it was, whatever it holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tsdb.answer.answer import (
    Answer,
    AnswerBody,
    AnswerCounts,
    AnswerSeries,
    LabelsAnswer,
    PackedLabels,
    PartitionAnswer,
    RawResult,
    SealedColumns,
    SeriesAnswer,
    WatchAnswer,
    joined_parts,
)
from tsdb.answer.spec import LabelsSpec, ReadOptions, SelectSpec, SeriesSpec, WatchSpec
from tsdb.answer.state import MemoryState
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.model.selector import Matcher, MatchType
from tsdb.query.join.joined_read import counts_of
from tsdb.v1 import reader_pb2
from tsdb.wire.select import AnswerEncoder, decode_select, decoded, encode_select
from tsdb.wire.series import (
    decode_labels,
    decode_names,
    decode_series,
    decode_series_answer,
    decode_values,
    encode_labels,
    encode_names,
    encode_series,
    encode_series_answer,
    encode_values,
)
from tsdb.wire.state import RequestToken
from tsdb.wire.watch import decode_watch, decode_watch_answer, encode_watch, encode_watch_answer

int64 = st.integers(-(1 << 62), 1 << 62)
count = st.integers(0, 1 << 62)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
matchers = st.lists(
    st.builds(Matcher, st.sampled_from(MatchType), st.text("ab", min_size=1), text), min_size=1, max_size=3
)
tokens = st.lists(st.builds(RequestToken, text, st.integers(0, 9), st.integers(-1, 99)), max_size=2).map(tuple)
options = st.builds(
    ReadOptions,
    after=tokens,
    allow_stale=st.booleans(),
    max_lag_ms=st.none() | count,
    allow_holes=st.booleans(),
    partitions=st.lists(st.integers(0, 9), max_size=3).map(tuple),
)
ends = st.none() | st.integers(-1000, 0), st.none() | st.integers(1, 1000)
holes = st.builds(HoleRecord, st.integers(0, 9), st.integers(0, (1 << 64) - 1), int64, int64, text, count)
states = st.builds(
    MemoryState,
    st.integers(0, 9),
    text,
    count,
    int64,
    st.none() | count,
    count,
    count,
    count,
    count,
    st.booleans(),
    st.booleans(),
    text,
    st.lists(holes, max_size=2).map(tuple),
    st.none() | int64,
    count,
    count,
    count,
)
warnings = st.lists(text, max_size=2).map(tuple)


@given(matchers.map(tuple), options, st.booleans(), st.booleans(), st.integers(0, 3), count)
def test_a_select_comes_back(
    found: tuple[Matcher, ...], some: ReadOptions, columns: bool, labels: bool, last_n: int, most: int
) -> None:
    spec = SelectSpec(
        found,
        None,
        -5,
        99,
        last_n=0 if columns else last_n,
        columns=columns,
        labels=labels,
        options=some,
        series_max=most,
        bytes_max=most,
    )
    assert decode_select(reader_pb2.SelectRequest.FromString(encode_select(spec).SerializeToString())) == spec


@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=5, unique=True), st.integers(1, 6))
def test_a_select_of_steps_by_ids_comes_back(ids: list[int], aggregation: int) -> None:
    spec = SelectSpec((), np.array(sorted(ids), np.uint64), 0, 100, 10, aggregation)
    back = decode_select(encode_select(spec))
    assert back.series_ids is not None
    assert back.series_ids.tolist() == sorted(ids)
    assert (back.step_ms, back.aggregation) == (10, aggregation)


@given(st.builds(SeriesSpec, matchers.map(tuple), *ends, st.lists(text).map(tuple), st.booleans(), options, count))
def test_a_read_of_series_comes_back(spec: SeriesSpec) -> None:
    assert decode_series(reader_pb2.SeriesRequest.FromString(encode_series(spec).SerializeToString())) == spec


@given(matchers.map(tuple), *ends, st.none() | st.text("ab", min_size=1), count, options)
def test_a_read_of_labels_comes_back(
    found: tuple[Matcher, ...], start: int | None, end: int | None, name: str | None, most: int, some: ReadOptions
) -> None:
    spec = LabelsSpec(found, start, end, name, 0 if name is None else most, some)
    assert decode_labels(encode_labels(spec)) == spec


def array(draw: st.DrawFn, dtype: Any, size: int) -> NDArray[Any]:
    """An array of any bits, as a message carries it."""
    itemsize = np.dtype(dtype).itemsize
    return np.frombuffer(draw(st.binary(min_size=size * itemsize, max_size=size * itemsize)), dtype)


@st.composite
def raws(draw: st.DrawFn, series: int) -> RawResult:
    counts = np.array([draw(st.integers(0, 3)) for _ in range(series)], np.uint32)
    total = int(counts.sum())
    orders = array(draw, np.int64, total) if draw(st.booleans()) else None
    return RawResult(counts, array(draw, np.int64, total), array(draw, np.float64, total), orders)


@st.composite
def sealed(draw: st.DrawFn) -> SealedColumns:
    columns, axes, data = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 9))
    axis_index = np.array([draw(st.integers(0, axes - 1)) for _ in range(columns)], np.uint32)
    axis_counts = np.array([draw(st.integers(0, 9)) for _ in range(axes)], np.uint32)
    return SealedColumns(
        int(axis_counts[axis_index].sum()),
        array(draw, np.uint32, columns),
        array(draw, np.uint32, columns),
        axis_index,
        array(draw, np.int64, axes),
        array(draw, np.uint32, axes),
        axis_counts,
        array(draw, np.uint8, data),
        array(draw, np.uint8, data),
    )


@st.composite
def series_of(draw: st.DrawFn, partition: int, *, times: bool) -> AnswerSeries:
    size = draw(st.integers(0, 3))
    labels = [draw(st.binary(max_size=4)) for _ in range(size)] if size and draw(st.booleans()) else None
    packed = None if labels is None else PackedLabels.of(labels)
    seen = [array(draw, np.int64, size) if times and size else None for _ in range(2)]
    return AnswerSeries(partition, array(draw, np.uint64, size), packed, *seen)


@st.composite
def parts(draw: st.DrawFn, partition: int) -> PartitionAnswer:
    series = draw(series_of(partition, times=False))
    if draw(st.booleans()):
        return PartitionAnswer(partition, series, raw=[draw(raws(len(series)))])
    return PartitionAnswer(partition, series, draw(st.lists(sealed(), max_size=2)), [draw(raws(len(series)))])


@st.composite
def answers(draw: st.DrawFn) -> list[Answer]:
    """A whole answer: each partition in one of its pieces."""
    found = [draw(parts(partition)) for partition in sorted(draw(st.sets(st.integers(0, 9), max_size=4)))]
    samples = sum(counts_of(part).samples for part in found)
    series = sum(len(part.series) for part in found if part.series is not None)
    cut = draw(st.integers(0, len(found)))
    first = Answer(AnswerBody(found[:cut], None, 0), tuple(draw(st.lists(states, max_size=3))), draw(warnings))
    last = AnswerBody(found[cut:], AnswerCounts(series, samples, draw(count)), 0)
    return [first, Answer(last)] if cut else [Answer(last, first.states, first.warnings)]


def content(answer: AnswerSeries | RawResult | SealedColumns) -> list[Any]:
    """All fields, with arrays as bytes."""
    if isinstance(answer, AnswerSeries):
        labels = None if answer.labels is None else answer.labels.split()
        return [
            answer.partition,
            answer.series_ids.tobytes(),
            labels,
            *map(as_bytes, (answer.first_ms, answer.last_ms)),
        ]
    if isinstance(answer, RawResult):
        return [answer.first_series, *map(as_bytes, (answer.counts, answer.ts_ms, answer.values, answer.orders))]
    return [answer.samples, *map(as_bytes, answer.arrays())]


def as_bytes(values: NDArray[Any] | None) -> bytes:
    return b"" if values is None else values.tobytes()


@pytest.mark.slow
@settings(max_examples=200)
@given(answers(), st.booleans())
def test_an_answer_comes_back_bit_for_bit(sent: list[Answer], by_field: bool) -> None:
    messages = map(reader_pb2.SelectResponse.FromString, AnswerEncoder(by_field=by_field).messages(sent))
    back = list(decoded(messages))
    assert (back[0].states, back[0].warnings) == (sent[0].states, sent[0].warnings)
    assert back[-1].body.counts == sent[-1].body.counts
    for got, want in zip(joined_parts(back), joined_parts(sent), strict=True):
        assert got.partition == want.partition
        assert got.series is not None
        assert want.series is not None
        assert content(got.series) == content(want.series)
        for kind in ("columns", "overlay", "raw"):
            # Samples of no series are not sent.
            filled = [one for one in getattr(want, kind) if kind == "columns" or one.samples]
            assert list(map(content, getattr(got, kind))) == list(map(content, filled))


@given(st.lists(states, max_size=2).map(tuple), warnings, st.sets(text, max_size=4))
def test_labels_come_back(some: tuple[MemoryState, ...], said: tuple[str, ...], texts: set[str]) -> None:
    sent = LabelsAnswer(some, said, texts)
    for back in (decode_names(encode_names(sent)), decode_values(encode_values(sent))):
        assert (back.states, back.warnings, list(back.texts)) == (some, said, sorted(texts))


@given(st.data(), st.dictionaries(st.tuples(text, text), count, max_size=3))
def test_series_and_groups_come_back(data: st.DataObject, groups: dict[tuple[str, ...], int]) -> None:
    sent = data.draw(series_of(3, times=True))
    back = decode_series_answer(encode_series_answer(SeriesAnswer(series=sent))).series
    assert back is not None
    assert content(back) == content(sent)
    assert decode_series_answer(encode_series_answer(SeriesAnswer(groups=groups))).groups == groups
    first = SeriesAnswer(tuple(data.draw(st.lists(states, max_size=2))), data.draw(warnings))
    assert decode_series_answer(encode_series_answer(first)).states == first.states


@given(st.builds(WatchSpec, matchers.map(tuple), st.lists(st.integers(0, 9), max_size=3).map(tuple), tokens))
def test_a_watch_comes_back(spec: WatchSpec) -> None:
    assert decode_watch(reader_pb2.WatchRequest.FromString(encode_watch(spec).SerializeToString())) == spec


@given(st.lists(st.tuples(int64, st.integers(0, (1 << 64) - 1), int64, st.floats()), max_size=4), st.booleans(), text)
def test_live_samples_come_back_bit_for_bit(
    rows: list[tuple[int, int, int, float]], described: bool, warning: str
) -> None:
    offsets, ids, times, values = zip(*rows, strict=True) if rows else ((), (), (), ())
    series = None
    if described:
        distinct = np.unique(np.array(ids, np.uint64))
        series = AnswerSeries(3, distinct, PackedLabels.of([b"a\xff1"] * len(distinct)))
    sent = WatchAnswer(
        3,
        "topic",
        9,
        warning,
        np.array(offsets, np.int64),
        np.array(ids, np.uint64),
        np.array(times, np.int64),
        np.array(values, np.float64),
        series,
    )
    got = decode_watch_answer(reader_pb2.WatchResponse.FromString(encode_watch_answer(sent).SerializeToString()))
    assert (got.partition, got.topic_id, got.last_record_offset, got.warning) == (3, "topic", 9, warning)
    for name in ("record_offsets", "series_ids", "ts_ms", "values"):
        assert getattr(got, name).tobytes() == getattr(sent, name).tobytes()
    if series is None:
        assert got.series is None
    else:
        assert got.series is not None
        assert (got.series.series_ids.tolist(), got.series.canonical()) == (
            series.series_ids.tolist(),
            series.canonical() if len(series) else [],
        )
