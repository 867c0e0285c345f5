"""The position of a stream of samples: in JSON, compared with the log, and at the end of the next batch."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_backfill.source.stream.offset import StreamOffset, advanced, stream_offset_of
from tsdb.model.errors import ConfigMismatch, CorruptData, TsdbError, UnknownVersion, WrongTopic

OFFSET = StreamOffset("topic", "a.", (3, 0, 7))
COUNTS = st.integers(0, 1 << 40)


@pytest.mark.parametrize("offset", [StreamOffset(), OFFSET, StreamOffset("topic", "", (5,), (2,))])
def test_an_offset_comes_back_from_the_checkpoint(offset: StreamOffset) -> None:
    text = json.dumps(offset.as_json())
    assert stream_offset_of(json.loads(text)) == offset
    assert json.dumps(stream_offset_of(json.loads(text)).as_json()) == text


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ({}, UnknownVersion),
        ({"version": 2}, UnknownVersion),
        ({"version": 1}, CorruptData),
        ({"version": 1, "topic_id": "a", "log_prefix": "", "next_offsets": 3}, CorruptData),
        ({"version": 1, "topic_id": "a", "log_prefix": "", "next_offsets": ["x"]}, CorruptData),
        ({"version": 1, "topic_id": "a", "log_prefix": "", "next_offsets": [-1]}, CorruptData),
    ],
)
def test_a_checkpoint_that_is_not_ours_is_refused(data: dict[str, object], error: type[TsdbError]) -> None:
    with pytest.raises(error, match="give the query a new checkpoint") as refused:
        stream_offset_of(data)
    assert refused.value.reason == "checkpoint"


@pytest.mark.parametrize(
    ("topic_id", "prefix", "partitions", "error", "reason"),
    [
        ("other", "a.", 3, WrongTopic, "checkpoint_topic"),
        ("topic", "b.", 3, WrongTopic, "checkpoint_prefix"),
        ("topic", "a.", 4, ConfigMismatch, "partitions"),
    ],
)
def test_a_checkpoint_of_another_log_is_refused(
    topic_id: str, prefix: str, partitions: int, error: type[TsdbError], reason: str
) -> None:
    OFFSET.check("topic", "a.", 3)
    with pytest.raises(error, match="new checkpoint") as refused:
        OFFSET.check(topic_id, prefix, partitions)
    assert refused.value.reason == reason


@given(st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=20), st.none() | st.integers(1, 1 << 41))
def test_a_batch_goes_on_in_every_partition_and_never_past_the_end(
    spans: list[tuple[int, int]], records_max: int | None
) -> None:
    starts, highs = tuple(a for a, _ in spans), tuple(b for _, b in spans)
    ends = advanced(starts, highs, records_max)
    for start, end, high in zip(starts, ends, highs, strict=True):
        assert start <= end <= max(start, high)
        assert end > start or high <= start
    taken = sum(end - start for start, end in zip(starts, ends, strict=True))
    assert records_max is None or taken <= records_max + len(spans)
    if records_max is None:
        assert ends == tuple(map(max, starts, highs))
