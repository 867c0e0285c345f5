"""Requests: every refusal of bad input names the field and the limit."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from tsdb.answer.spec import STEPS_MAX, TOKENS_MAX, highest_offsets, partitions_of
from tsdb.model.errors import InvalidRequest, WrongTopic
from tsdb.model.selector import MATCHERS_MAX, Matcher, MatchType
from tsdb.model.window import TIME_MAX_MS
from tsdb.v1 import common_pb2, reader_pb2
from tsdb.wire.select import decode_select
from tsdb.wire.series import decode_series

UP = common_pb2.Matcher(name="__name__", value="up")


def select_request(**changes: Any) -> reader_pb2.SelectRequest:
    return reader_pb2.SelectRequest(**{"matchers": [UP], "start_ms": 0, "end_ms": 1000, **changes})


@pytest.mark.parametrize(
    ("changes", "reason", "named"),
    [
        ({"start_ms": 5, "end_ms": 5}, "bad_range", "[5, 5) is empty"),
        ({"start_ms": 6, "end_ms": 5}, "bad_range", "[6, 5) is reversed"),
        ({"start_ms": -TIME_MAX_MS - 1}, "bad_range", "2^61"),
        ({"end_ms": TIME_MAX_MS + 1}, "bad_range", "2^61"),
        ({"encoding": 9}, "bad_encoding", "encoding 9"),
        ({"encoding": reader_pb2.COLUMNS, "last_n": 1}, "bad_encoding", "last_n"),
        ({"encoding": reader_pb2.COLUMNS, "partial": True}, "bad_encoding", "partial"),
        (
            {"encoding": reader_pb2.COLUMNS, "step_ms": 1, "aggregation": reader_pb2.SUM},
            "bad_encoding",
            "COLUMNS goes without step_ms",
        ),
        ({"matchers": []}, "bad_selector", "either matchers or series_ids"),
        ({"series_ids": b"12345678"}, "bad_selector", "either matchers or series_ids"),
        ({"matchers": [], "series_ids": b"1234567"}, "bad_series_ids", "7 bytes"),
        ({"matchers": [common_pb2.Matcher(value="x")]}, "bad_matcher", "without a label name"),
        ({"matchers": [common_pb2.Matcher(type=cast(Any, 7), name="a")]}, "bad_matcher", "type 7"),
        ({"matchers": [UP] * (MATCHERS_MAX + 1)}, "bad_matcher", f"limit is {MATCHERS_MAX}"),
        ({"aggregation": 8, "step_ms": 1}, "bad_step", "aggregation 8"),
        ({"step_ms": -1, "aggregation": reader_pb2.SUM}, "bad_step", "-1"),
        ({"step_ms": 1}, "bad_step", "go together"),
        ({"aggregation": reader_pb2.SUM}, "bad_step", "go together"),
        ({"step_ms": 1, "aggregation": reader_pb2.SUM, "last_n": 1}, "bad_step", "last_n"),
        (
            {"step_ms": 1, "aggregation": reader_pb2.SUM, "partial": True},
            "bad_step",
            "partial",
        ),
        ({"step_ms": 1, "aggregation": reader_pb2.SUM, "end_ms": STEPS_MAX + 1}, "bad_step", f"limit is {STEPS_MAX}"),
    ],
)
def test_an_invalid_select_is_refused_by_name(changes: dict[str, Any], reason: str, named: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_select(select_request(**changes))
    assert caught.value.reason == reason
    assert named in caught.value.message


def test_a_select_at_its_limits_passes() -> None:
    request = select_request(
        matchers=[UP] * MATCHERS_MAX, step_ms=1, aggregation=reader_pb2.AVG, start_ms=-5, end_ms=STEPS_MAX - 5
    )
    query = decode_select(request)
    assert query.matchers[0] == Matcher(MatchType.EQUAL, "__name__", "up")
    assert (query.step_ms, query.aggregation, query.columns, query.labels) == (1, reader_pb2.AVG, False, True)


def test_series_ids_are_made_ascending_and_unique() -> None:
    ids = np.array([7, 3, 7, 2**64 - 1], "<u8")
    query = decode_select(select_request(matchers=[], series_ids=ids.tobytes()))
    assert query.series_ids is not None
    assert query.series_ids.tolist() == [3, 7, 2**64 - 1]


def test_a_series_request_knows_which_ends_were_given() -> None:
    every = decode_series(reader_pb2.SeriesRequest())
    assert (every.ranged, every.start_ms is not None) == (False, False)
    ended = decode_series(reader_pb2.SeriesRequest(end_ms=5))
    assert (ended.ranged, ended.start_ms is not None, ended.first_ms, ended.end_ms) == (True, False, -TIME_MAX_MS, 5)
    begun = decode_series(reader_pb2.SeriesRequest(start_ms=0))
    assert (begun.ranged, begun.start_ms is not None, begun.start_ms, begun.needed_end_ms) == (
        True,
        True,
        0,
        TIME_MAX_MS,
    )
    with pytest.raises(InvalidRequest, match="reversed"):
        decode_series(reader_pb2.SeriesRequest(start_ms=2, end_ms=1))


def token(partition: int = 0, record_offset: int = 5, topic_id: str = "log") -> common_pb2.Token:
    return common_pb2.Token(topic_id=topic_id, partition=partition, record_offset=record_offset)


def test_of_tokens_the_highest_of_each_partition_counts() -> None:
    assert highest_offsets([token(), token(1, 3), token(record_offset=9), token(record_offset=2)], "log", [0, 1]) == {
        0: 9,
        1: 3,
    }


@pytest.mark.parametrize(
    ("tokens", "reason", "named"),
    [
        ([token(topic_id="other")], "wrong_topic", "'other'"),
        ([token(partition=2)], "bad_partition", "partition 2"),
        ([token(record_offset=-2)], "bad_token", "-2"),
        ([token()] * (TOKENS_MAX + 1), "bad_token", f"limit is {TOKENS_MAX}"),
    ],
)
def test_tokens_that_cannot_be_of_this_log_are_refused(tokens: list[common_pb2.Token], reason: str, named: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        highest_offsets(tokens, "log", [0, 1])
    assert caught.value.reason == reason
    assert named in caught.value.message
    assert isinstance(caught.value, WrongTopic) == (reason == "wrong_topic")


def test_partitions_are_all_served_or_the_requested_ones() -> None:
    assert partitions_of([], [3, 1]) == [1, 3]
    assert partitions_of([3, 3], [1, 3]) == [3]
    with pytest.raises(InvalidRequest, match=r"\[2\] are not served here; served: \[1, 3\]"):
        partitions_of([1, 2], [1, 3])
