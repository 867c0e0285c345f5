"""Watch over heads: a stream's samples, series descriptions and offsets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from support.data.heads import Record, apply, canonical_of, details_of, id_of, new_head, register
from support.servers.queriers import Context
from tsdb.answer.answer import WatchAnswer
from tsdb.head.head import Head
from tsdb.head.slices.ring import DETAIL_BYTES, SAMPLE_BYTES
from tsdb.head.state import HeadLimits
from tsdb.model.clock import ManualClock
from tsdb.model.details import joined_details, same_details
from tsdb.model.errors import InvalidRequest, OutOfCoverage, Unavailable
from tsdb.model.labels import series_id
from tsdb.reader.read_call import ReadCalls
from tsdb.replay.replay import PartitionProgress
from tsdb.selector.selectors import parse_selector
from tsdb.store.applied import AppliedSignal
from tsdb.store.partition import Partition
from tsdb.store.readiness import ReadinessEvaluator
from tsdb.store.watch import HEARTBEAT_S, Watch
from tsdb.wire.watch import decode_watch_answer, encode_watch_answer

EVERYTHING = '{__name__=~"m_.*"}'


class QuietSignal(AppliedSignal):
    """Never sleeps: a wait lets its time pass on the clock."""

    def wait(self, seen: int, timeout_s: float) -> None:
        self.clock.sleep(timeout_s)


class Bench:
    """One partition and a stream over it."""

    def __init__(self, head: Head) -> None:
        self.clock = ManualClock(0)
        self.applied = QuietSignal(self.clock)
        self.partition = Partition(0, "topic", head, PartitionProgress(0), ReadinessEvaluator(), self.clock)

    def stream(self, selector: str = EVERYTHING, *, after: int | None = None) -> Iterator[WatchAnswer]:
        tokens = {} if after is None else {0: after}
        watch = Watch({0: self.partition}, parse_selector(selector), tokens)
        return watch.answers(self.applied, Context(), ReadCalls())


def values_of(message: WatchAnswer) -> list[float]:
    return [float(value) for value in message.values]


def described(message: WatchAnswer) -> list[bytes]:
    return [] if message.series is None else message.series.canonical()


def put(head: Head, offset: int, *numbers: int) -> None:
    apply(head, [Record(offset, 0, tuple((number, offset % 10, offset + number / 10) for number in numbers))])


def offsets_of(messages: Sequence[WatchAnswer]) -> list[int]:
    return [int(offset) for message in messages for offset in message.record_offsets]


def test_a_stream_starts_now_and_sends_what_is_applied_from_then_on() -> None:
    bench = Bench(new_head(series=2))
    put(bench.partition.head, 0, 0)
    stream = bench.stream()
    assert next(stream).last_record_offset == 0, "a heartbeat: nothing new yet"
    put(bench.partition.head, 1, 0, 1)
    message = next(stream)
    assert (message.partition, message.topic_id, message.last_record_offset) == (0, "topic", 1)
    assert values_of(message) == [1.0, 1.1]
    assert message.series_ids.tolist() == [id_of(0), id_of(1)]
    assert message.ts_ms.tolist() == [1, 1]


def test_a_stream_on_a_head_that_has_applied_nothing_starts_where_its_replay_does() -> None:
    bench = Bench(new_head(series=1, since_offset=100, from_start=False))
    stream = bench.stream()
    assert next(stream).last_record_offset == 99
    put(bench.partition.head, 100, 0)
    assert offsets_of([next(stream)]) == [100]


def test_a_stream_resumes_after_the_last_record_seen() -> None:
    bench = Bench(new_head(series=1))
    for offset in range(5):
        put(bench.partition.head, offset, 0)
    for after in (-1, 2, 3):
        stream = bench.stream(after=after)
        messages = [next(stream)]
        while messages[-1].last_record_offset < 4:
            messages.append(next(stream))
        assert offsets_of(messages) == list(range(after + 1, 5))


def test_only_matching_samples_are_sent_and_the_resume_point_moves_anyway() -> None:
    bench = Bench(new_head(series=2))
    stream = bench.stream("m_1")
    put(bench.partition.head, 0, 0, 1)
    assert values_of(next(stream)) == [0.1]
    for offset in range(1, 4):
        put(bench.partition.head, offset, 0)
    message = next(stream)
    assert (message.last_record_offset, len(message.values)) == (3, 0)


def test_a_quiet_stream_sends_its_last_offset_every_second() -> None:
    bench = Bench(new_head(series=1))
    stream = bench.stream()
    before = bench.clock.monotonic()
    for _ in range(3):
        assert next(stream).last_record_offset == -1
    assert bench.clock.monotonic() == pytest.approx(before + 3 * HEARTBEAT_S)


def test_messages_of_a_partition_that_lags_warn() -> None:
    bench = Bench(new_head(series=1))
    bench.partition.observe_high_watermark(0, 0.0)
    stream = bench.stream()
    assert next(stream).warning == ""
    bench.clock.advance(2_000)
    bench.partition.observe_high_watermark(5, bench.clock.monotonic())
    assert "partition 0 is behind the log: lagging, lag 3000 ms" in next(stream).warning


def test_each_series_is_described_once_a_stream() -> None:
    bench = Bench(new_head(series=3))
    stream = bench.stream()
    put(bench.partition.head, 0, 0, 1)
    assert described(next(stream)) == sorted(map(canonical_of, (0, 1)), key=series_id)
    put(bench.partition.head, 1, 1, 2)
    assert described(next(stream)) == [canonical_of(2)]
    assert len(described(next(bench.stream(after=0)))) == 2


def test_a_fresh_head_describes_its_series_again() -> None:
    bench = Bench(new_head(series=1))
    stream = bench.stream()
    put(bench.partition.head, 0, 0)
    assert described(next(stream)) == [canonical_of(0)]
    fresh = new_head(since_offset=1)
    register(fresh, [4, 0])
    bench.partition.renew(fresh, PartitionProgress(1))
    put(fresh, 1, 4, 0)
    message = next(stream)
    assert described(message) == [canonical_of(4)]
    assert message.series_ids.tolist() == [id_of(4), id_of(0)]


def test_a_stream_slower_than_the_ring_gets_its_last_offset() -> None:
    bench = Bench(new_head(series=1, limits=HeadLimits(ring_samples_max=4)))
    stream = bench.stream()
    put(bench.partition.head, 0, 0)
    assert offsets_of([next(stream)]) == [0]
    for offset in range(1, 8):
        put(bench.partition.head, offset, 0)
    with pytest.raises(OutOfCoverage, match="last record_offset sent 0") as caught:
        next(stream)
    assert caught.value.reason == "watch_ring"
    assert caught.value.metadata == {"partition": "0", "last_record_offset": "0"}


def test_a_stream_ends_with_its_store() -> None:
    bench = Bench(new_head(series=1))
    stream = bench.stream()
    next(stream)
    bench.applied.close()
    with pytest.raises(Unavailable) as caught:
        next(stream)
    assert caught.value.reason == "draining"


@pytest.mark.parametrize("selector", ['{a=~"("}', '{a!="b"}'])
def test_bad_matchers_are_refused_before_the_first_message(selector: str) -> None:
    bench = Bench(new_head(series=1))
    with pytest.raises(InvalidRequest):
        bench.stream(selector)


def test_histograms_and_start_timestamps_are_sent_as_they_were_applied() -> None:
    bench = Bench(new_head(series=2))
    apply(bench.partition.head, [Record(0, 0, ((0, 1, 8.0), (1, 1, 3.0)), details=(8, 1))])
    apply(bench.partition.head, [Record(1, 0, ((0, 1, 9.0), (0, 2, 1.0)), details=(7, 0))])
    stream = bench.stream(after=-1)
    answers = [decode_watch_answer(encode_watch_answer(next(stream)))]
    while sum(len(one.ts_ms) for one in answers) < 4:
        answers.append(next(stream))
    parts = [(len(one.ts_ms), one.details) for one in answers]
    want = details_of((8, 1, 7, 0), np.array([8.0, 3.0, 9.0, 1.0]))
    assert same_details(joined_details(parts), want)
    other = next(bench.stream("m_1", after=-1))
    assert values_of(other) == [3.0]
    assert same_details(other.details, details_of((1,), np.array([3.0])))


def test_a_ring_has_details_within_its_bytes_and_counts_them() -> None:
    bench = Bench(new_head(series=1, limits=HeadLimits(ring_samples_max=4)))
    ring = bench.partition.head.contents.ring
    for offset in range(64):
        apply(bench.partition.head, [Record(offset, 0, ((0, offset, 8.0),), details=(8,))])
        assert 0 < ring.bytes <= 4 * (SAMPLE_BYTES + DETAIL_BYTES)


def test_an_answer_has_whole_records_where_details_are_many() -> None:
    apply(head := new_head(series=2), [Record(at, 0, ((0, at, 8.0), (1, at, 1.0)), details=(8, 9)) for at in range(8)])
    (batch,) = head.watch_since(-1)
    pieces = list(batch.pieces(batch.detail_bytes // 3))
    assert len(pieces) > 2
    assert [piece.first_offset for piece in pieces] == [0, *(piece.last_offset + 1 for piece in pieces[:-1])]
    assert pieces[-1].last_offset == 7
    assert np.array_equal(np.concatenate([piece.offsets for piece in pieces]), batch.offsets)
    assert same_details(joined_details([(len(piece.refs), piece.details) for piece in pieces]), batch.details)
