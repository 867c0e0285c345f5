"""A watch gives every sample once across reconnects and knows where to resume."""

from __future__ import annotations

import numpy as np
import pytest

from tsdb.client.watch import WatchState
from tsdb.model.errors import CorruptData, WrongTopic
from tsdb.v1 import common_pb2, reader_pb2

UP = b"__name__\xffup"


def message(offset: int, *, samples: int = 1, described: bool = True, topic_id: str = "t") -> reader_pb2.WatchResponse:
    response = reader_pb2.WatchResponse(
        partition=2,
        topic_id=topic_id,
        last_record_offset=offset,
        record_offsets=np.full(samples, offset, "<i8").tobytes(),
        series_ids=np.full(samples, 9, "<u8").tobytes(),
        ts_ms=np.arange(samples, dtype="<i8").tobytes(),
        values=np.arange(samples, dtype="<f8").tobytes(),
    )
    if described:
        response.series.series_ids = np.array([9], "<u8").tobytes()
        response.series.labels = UP
        response.series.label_lengths = np.array([len(UP)], "<u4").tobytes()
    return response


def resume_points(state: WatchState) -> list[tuple[int, str, int]]:
    tokens = getattr(state.request(), "from")
    return [(token.partition, token.topic_id, token.record_offset) for token in tokens]


def test_a_watch_begins_after_what_is_applied_now_and_before_the_first_record_of_an_empty_partition() -> None:
    state = WatchState("up")
    state.begin(
        [
            common_pb2.PartitionState(partition=0, topic_id="t", applied_offset=41, next_offset=42),
            common_pb2.PartitionState(partition=1, topic_id="t", next_offset=0),
        ]
    )
    assert resume_points(state) == [(0, "t", 41), (1, "t", -1)]


def test_a_given_resume_point_stands_and_other_partitions_are_left_alone() -> None:
    token = common_pb2.Token(topic_id="t", partition=0, record_offset=5)
    state = WatchState("up", partitions=[0], resume=[token])
    state.begin([common_pb2.PartitionState(partition=p, topic_id="t", applied_offset=41) for p in (0, 1)])
    assert resume_points(state) == [(0, "t", 5)]


def test_samples_come_with_labels_and_move_the_resume_point() -> None:
    state = WatchState("up")
    batch = state.add(message(7, samples=2))
    assert batch is not None
    assert (batch.partition, batch.record_offsets.tolist(), batch.ts_ms.tolist()) == (2, [7, 7], [0, 1])
    assert (dict(batch.canonical), len(batch)) == ({9: UP}, 2)
    assert resume_points(state) == [(2, "t", 7)]


def test_a_series_is_described_once_and_remembered() -> None:
    state = WatchState("up")
    state.add(message(7))
    batch = state.add(message(8, described=False))
    assert batch is not None
    assert batch.canonical[9] == UP


def test_a_heartbeat_moves_the_resume_point_without_samples() -> None:
    state = WatchState("up")
    assert state.add(message(-1, samples=0, described=False)) is None
    assert resume_points(state) == [(2, "t", -1)]
    assert state.add(message(99, samples=0, described=False)) is None
    assert resume_points(state) == [(2, "t", 99)]


def test_a_log_made_anew_ends_the_watch() -> None:
    state = WatchState("up")
    state.add(message(7))
    with pytest.raises(WrongTopic, match="'t2'"):
        state.add(message(0, topic_id="t2"))


def test_samples_of_a_series_never_described_are_corrupt_and_do_not_move_the_resume_point() -> None:
    state = WatchState("up", resume=[common_pb2.Token(topic_id="t", partition=2, record_offset=6)])
    with pytest.raises(CorruptData, match="without its labels"):
        state.add(message(7, described=False))
    assert resume_points(state) == [(2, "t", 6)]


def test_a_lag_that_begins_and_ends_is_a_batch_without_samples() -> None:
    state = WatchState('{job="test"}')
    quiet, late = (reader_pb2.WatchResponse(topic_id="t", last_record_offset=4, warning=text) for text in ("", "late"))
    found = [state.add(message) for message in (quiet, late, late, quiet, quiet)]
    assert [None if batch is None else (len(batch), batch.warning) for batch in found] == [
        None,
        (0, "late"),
        None,
        (0, ""),
        None,
    ]
