"""The request of a select has all its arguments, and its answer is joined exactly or refused."""

from __future__ import annotations

import numpy as np
import pytest

from support.fakes.fake_reader import raw_frame
from tsdb.answer.spec import ReadOptions
from tsdb.client.select import AGGREGATIONS, SelectAnswer, SelectKeywords, SelectQuery
from tsdb.model.errors import CorruptData, InvalidRequest, Unavailable
from tsdb.v1 import common_pb2, reader_pb2

Frame = reader_pb2.SelectResponse
A, B, C = b"__name__\xffa", b"__name__\xffb", b"__name__\xffc"


def header(*partitions: int) -> Frame:
    states = [common_pb2.PartitionState(partition=partition) for partition in partitions]
    return Frame(header=reader_pb2.SelectHeader(partitions=states))


def series(ids: list[int], labels: list[bytes] | None = None, partition: int = 0) -> Frame:
    block = common_pb2.SeriesBlock(partition=partition, series_ids=np.array(ids, "<u8").tobytes())
    if labels is not None:
        block.labels = b"".join(labels)
        block.label_lengths = np.array([len(label) for label in labels], "<u4").tobytes()
    return Frame(series=[block])


def raw(*rows: tuple[int, int, float], partition: int = 0) -> Frame:
    frame = raw_frame(list(rows))
    frame.partition = partition
    return Frame(raw=[frame])


def trailer(series_count: int, samples: int) -> Frame:
    return Frame(trailer=reader_pb2.SelectTrailer(series=series_count, samples=samples))


def answer(*frames: Frame) -> SelectAnswer:
    reader = SelectAnswer(0, 1 << 40)
    for frame in frames:
        reader.add(frame)
    return reader


def test_a_request_says_what_was_asked() -> None:
    token = common_pb2.Token(topic_id="t", partition=1, record_offset=7)
    options = ReadOptions(after=[token], allow_holes=True, max_lag_ms=0, partitions=[1])
    call = SelectQuery('up{job=~"a.*"}', 10, 20, step_ms=5, agg="sum", labels=False, options=options).call()
    request = call.request
    assert isinstance(request, reader_pb2.SelectRequest)
    assert [(m.type, m.name, m.value) for m in request.matchers] == [(0, "__name__", "up"), (2, "job", "a.*")]
    assert (request.start_ms, request.end_ms, request.step_ms, request.aggregation) == (10, 20, 5, reader_pb2.SUM)
    assert (request.omit_labels, request.encoding) == (True, reader_pb2.RAW)
    assert (list(request.options.after), request.options.allow_holes) == ([token], True)
    assert request.options.HasField("max_lag_ms")


def test_series_ids_travel_instead_of_matchers() -> None:
    request = SelectQuery(None, 0, 1, series_ids=[1, (1 << 64) - 1]).call().request
    assert isinstance(request, reader_pb2.SelectRequest)
    assert np.frombuffer(request.series_ids, "<u8").tolist() == [1, (1 << 64) - 1]


@pytest.mark.parametrize(
    ("selector", "keywords", "what"),
    [
        (None, {}, "either a selector or series_ids"),
        ("up", {"series_ids": [1]}, "either a selector or series_ids"),
        ("up", {"agg": "median", "step_ms": 5}, "'median' is unknown"),
        ("up", {"encoding": "json"}, "'json' is unknown"),
        ("up{", {}, "1:4: parse error"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_it_is_sent(
    selector: str | None, keywords: SelectKeywords, what: str
) -> None:
    with pytest.raises(InvalidRequest, match=what):
        SelectQuery(selector, 0, 1, **keywords).call()


def test_every_aggregation_of_the_wire_can_be_named() -> None:
    assert AGGREGATIONS == ("last", "avg", "min", "max", "sum", "count")


def test_frames_of_partitions_are_joined_in_order() -> None:
    result = answer(
        header(0, 1),
        series([3, 9], [A, B]),
        raw((0, 10, 1.0), (0, 20, 2.0), (1, 10, 3.0)),
        series([5], [C], partition=1),
        raw((0, 15, 4.0), partition=1),
        trailer(3, 4),
    ).finish()
    assert [(s.series_id, s.canonical, s.ts_ms.tolist(), s.values.tolist()) for s in result.series] == [
        (3, A, [10, 20], [1.0, 2.0]),
        (9, B, [10], [3.0]),
        (5, C, [15], [4.0]),
    ]
    assert [state.partition for state in result.partitions] == [0, 1]
    assert (len(result), result.samples) == (3, 4)


def test_a_message_may_hold_many_frames() -> None:
    whole = Frame()
    for message in (header(0), series([1, 2], [A, B]), raw((0, 10, 1.0)), raw((1, 10, 2.0)), trailer(2, 2)):
        whole.MergeFrom(message)
    assert [s.values.tolist() for s in answer(whole).finish().series] == [[1.0], [2.0]]


def test_a_series_may_go_on_in_the_next_frames() -> None:
    result = answer(
        header(0),
        series([1, 2, 3], [A, B, C]),
        raw((0, 10, 1.0), (1, 10, 2.0)),
        raw((1, 20, 3.0)),
        raw((1, 30, 4.0), (2, 10, 5.0)),
        trailer(3, 5),
    ).finish()
    assert [s.ts_ms.tolist() for s in result.series] == [[10], [10, 20, 30], [10]]


def test_series_without_samples_in_the_range_are_left_out() -> None:
    result = answer(header(0), series([1, 2, 3], [A, B, C]), raw((1, 10, 2.0)), trailer(3, 1)).finish()
    assert [s.canonical for s in result.series] == [B]


def test_an_answer_of_nothing_is_an_empty_result() -> None:
    result = answer(header(0), series([], []), trailer(0, 0)).finish()
    assert (len(result), result.samples, result.series) == (0, 0, [])
    assert answer(header(), trailer(0, 0)).finish().samples == 0


def test_orders_come_with_their_samples() -> None:
    frame = raw((0, 10, 1.0), (0, 20, 2.0))
    frame.raw[0].orders = np.array([7, -1], "<i8").tobytes()
    result = answer(header(0), series([1], [A]), frame, trailer(1, 2)).finish()
    assert result.orders is not None
    assert result.orders.tolist() == [7, -1]


@pytest.mark.parametrize("frames", range(4))
def test_an_answer_without_its_trailer_is_an_error_and_not_a_short_result(frames: int) -> None:
    whole = [header(0), series([1], [A]), raw((0, 10, 1.0)), trailer(1, 1)]
    with pytest.raises(Unavailable) as cut:
        answer(*whole[:frames]).finish()
    assert cut.value.reason == "answer_cut"


def _odd(field: str, value: bytes) -> Frame:
    frame = raw((0, 10, 1.0))
    setattr(frame.raw[0], field, value)
    return frame


@pytest.mark.parametrize(
    ("frames", "what"),
    [
        ([series([1], [A])], "before the header"),
        ([header(0), trailer(0, 0), header(0)], "after the trailer"),
        ([header(0), raw((0, 10, 1.0))], "without its series"),
        ([header(0), series([1], [A]), raw((0, 10, 1.0), partition=1)], "partition 1 without"),
        ([header(0), series([1], [A]), raw((0, 10, 1.0)), trailer(1, 2)], "1 samples came, the trailer says 1 and 2"),
        ([header(0), series([1], [A]), raw((0, 10, 1.0)), trailer(2, 1)], "trailer says 2"),
        ([header(0), series([1], [A]), raw((1, 10, 1.0)), trailer(1, 1)], r"series \[1, 2\)"),
        ([header(0), series([1, 2], [A, B]), raw((1, 1, 1.0)), raw((0, 2, 1.0)), trailer(2, 2)], "after 1"),
        ([header(0), series([1], [A]), _odd("counts", b"abc"), trailer(1, 1)], "counts has 3 bytes"),
        ([header(0), series([1], [A]), _odd("values", b""), trailer(1, 1)], "values has 0 items, want 1"),
        ([header(0), series([1, 2], [A]), trailer(2, 0)], "label_lengths has 1 items, want 2"),
    ],
)
def test_an_answer_that_contradicts_itself_is_corrupt(frames: list[Frame], what: str) -> None:
    with pytest.raises(CorruptData, match=what):
        answer(*frames).finish()


def test_columns_that_name_an_axis_beyond_the_frame_are_corrupt() -> None:
    columns = reader_pb2.ColumnsFrame(
        axis_index=np.array([1], "<u4").tobytes(), axis_counts=np.array([5], "<u4").tobytes()
    )
    with pytest.raises(CorruptData, match="axis 1 of 1"):
        answer(header(0), series([1], [A]), Frame(columns=[columns]), trailer(1, 5)).finish()
