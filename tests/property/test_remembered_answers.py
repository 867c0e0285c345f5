"""A cached answer equals a computed one byte for byte, whatever was applied, sealed, merged, dropped, registered or
read in between. Its samples are the same whether its parts are joined or decoded one by one, and whether the store or
the reader trims them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data.heads import Record, apply, new_head, register
from support.examples import examples
from tsdb.answer.answer import JOINED_SAMPLES_MAX, AnswerBody, JoinedSeries
from tsdb.answer.columns import joined_body, joined_series
from tsdb.answer.spec import SelectSpec
from tsdb.head.head import Head
from tsdb.model.clock import ManualClock
from tsdb.model.time_set import SliceLengths
from tsdb.reader.read_call import SelectLimits
from tsdb.replay.replay import PartitionProgress
from tsdb.selector.selectors import parse_selector
from tsdb.store.partition import Partition, Tolerance
from tsdb.store.readiness import ReadinessEvaluator
from tsdb.store.reads import ReadMemory, gather
from tsdb.store.selection import Selections
from tsdb.wire.select import AnswerEncoder

SERIES = 6
SELECTORS = ['{job="test"}', '{__name__="m_1"}']
ANY = Tolerance(allow_stale=True, allow_holes=True)

samples = st.tuples(st.integers(0, SERIES + 1), st.integers(-60, 3), st.floats(allow_nan=False))
records = st.lists(st.tuples(st.integers(0, 1), st.lists(samples, max_size=6)), min_size=2, max_size=12)
new_series = st.lists(st.tuples(st.integers(0, 1), st.integers(SERIES, SERIES + 1)), max_size=1)
# Each list has few values, so that rounds often repeat an earlier query.
reads = st.tuples(
    st.sampled_from(SELECTORS), st.sampled_from([-90, -60, -40, -15]), st.sampled_from([20, 45, 90]), st.booleans()
)


def partition_of(head: Head) -> Partition:
    clock = ManualClock(0)
    return Partition(head.partition, "topic", head, PartitionProgress(0), ReadinessEvaluator(), clock)


def answer(partitions: list[Partition], query: SelectSpec, memory: ReadMemory) -> bytes:
    found = gather(partitions, query, ANY, SelectLimits(), memory)
    times = query.start_ms, query.end_ms
    by_parts = contents(joined_series(found.body.parts, *times))
    untrimmed = gather(partitions, replace(query, untrimmed=True), ANY, SelectLimits(), memory)
    for body in (found.body, untrimmed.body):
        assert contents(joined_body(body, *times, lambda size: None)) == by_parts
    return b"".join(AnswerEncoder().messages([found]))


def contents(found: JoinedSeries) -> tuple[bytes | list[bytes], ...]:
    arrays = (found.series_ids, found.starts, found.ts_ms, found.values)
    return (*(array.tobytes() for array in arrays), list(found.canonical))


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(st.lists(st.tuples(records, new_series, st.lists(reads, min_size=1, max_size=3)), min_size=2, max_size=8))
def test_a_cached_answer_equals_a_computed_one(
    rounds: list[
        tuple[
            list[tuple[int, list[tuple[int, int, float]]]],
            list[tuple[int, int]],
            list[tuple[str, int, int, bool]],
        ]
    ],
) -> None:
    heads = [new_head(number, series=SERIES, hold_ms=100) for number in range(2)]
    partitions, remembered = [partition_of(head) for head in heads], ReadMemory()
    remembered.selections = Selections(bytes_max=60_000)
    offset, now_ms = 0, 1000
    for some_records, announced, asked in rounds:
        for which, some in some_records:
            now_ms += 5
            given_ = tuple((number, now_ms + after, value) for number, after, value in some)
            apply(heads[which], [Record(offset, now_ms, given_)])
            partitions[which].progress.next_offset = offset + 1
            partitions[which].observe_high_watermark(offset + 1, 0.0)
            heads[which].maintain()
            offset += 1
        for which, number in announced:
            register(heads[which], [number])
        for selector, back, length, labels in asked:
            start_ms = now_ms // 40 * 40 + back
            query = SelectSpec(
                parse_selector(selector), None, start_ms, start_ms + length, 0, 0, 0, True, labels, partial=True
            )
            for of in (partitions, partitions[:1]):
                assert answer(of, query, remembered) == answer(of, query, ReadMemory())


def test_an_untrimmed_body_is_reused_for_other_ranges() -> None:
    head = new_head(series=SERIES)
    memory, partitions = ReadMemory(), [partition_of(head)]
    apply(head, [Record(0, 1000, ((1, 1000, 1.0), (1, 1001, 2.0)))])
    query = SelectSpec(parse_selector('{__name__="m_1"}'), None, 0, 1001, columns=True, untrimmed=True, partial=True)
    first = gather(partitions, query, ANY, SelectLimits(), memory).body
    assert joined_body(first, 0, 1001, lambda size: None).values.tolist() == [1.0]
    other = gather(partitions, replace(query, start_ms=1001, end_ms=1002), ANY, SelectLimits(), memory).body
    assert other is first
    assert joined_body(other, 1001, 1002, lambda size: None).values.tolist() == [2.0]


def test_an_answer_with_too_many_samples_to_stay_decoded_is_trimmed_by_the_store() -> None:
    # Each seal goes through all sealed slices, of which slices of 10 ms would be 3,000.
    head = new_head(series=SERIES, hold_ms=2 * JOINED_SAMPLES_MAX, slices=SliceLengths(100, 400))
    memory, partitions = ReadMemory(), [partition_of(head)]
    times = range(1000, 1000 + JOINED_SAMPLES_MAX + 500)
    apply(head, [Record(ms, ms, ((1, ms, float(ms)),)) for ms in times])
    head.maintain()
    for start_ms, end_ms in ((1000, times[-1] + 1), (1000, times[-1]), (times[-1], times[-1] + 1), (5000, 5010)):
        query = SelectSpec(
            parse_selector('{__name__="m_1"}'), None, start_ms, end_ms, columns=True, untrimmed=True, partial=True
        )
        found = gather(partitions, query, ANY, SelectLimits(), memory).body
        got = joined_body(found, start_ms, end_ms, lambda size: None).ts_ms.tolist()
        assert got == list(range(start_ms, end_ms))


def test_a_body_is_reused_until_a_sample_of_its_series_arrives() -> None:
    head = new_head(series=SERIES)
    memory, partitions = ReadMemory(), [partition_of(head)]
    query = SelectSpec(parse_selector('{__name__="m_1"}'), None, 0, 2000, 0, 0, 0, True, True, partial=True)

    def body() -> AnswerBody:
        return gather(partitions, query, ANY, SelectLimits(), memory).body

    apply(head, [Record(0, 1000, ((1, 1000, 1.0), (0, 1000, 1.0)))])
    first = body()
    assert body() is first
    apply(head, [Record(1, 1001, ((0, 1001, 2.0),))])
    assert body() is first, "a sample of another series"
    apply(head, [Record(2, 1002, ((1, 1002, 2.0),))])
    assert [counts.samples for counts in (body().counts, first.counts) if counts] == [2, 1]
