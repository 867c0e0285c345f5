"""Two heads at one applied offset answer the same bytes, whenever they started, however they batched and sealed."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from support.data.heads import Record, apply, new_head, refs_of
from support.examples import examples
from tsdb.answer.answer import RawResult
from tsdb.head.head import Head
from tsdb.head.state import HeadLimits
from tsdb.model.time_set import SliceLengths

SERIES = range(6)
START_MS = 50_000

values = st.floats(allow_nan=True, width=64)
sample = st.tuples(st.sampled_from(SERIES), st.one_of(st.integers(-15, 12), st.integers(-300, 0)), values)
record_parts = st.tuples(st.one_of(st.integers(0, 9), st.integers(-4, 80)), st.lists(sample, max_size=6))


@dataclass(frozen=True)
class Habits:
    """Settings of one store: slices, batches, times of maintenance, and the first record of its replay."""

    slices: SliceLengths
    batches: tuple[int, ...]
    maintain_every: int
    limits: HeadLimits
    skip: int


habits = st.builds(
    Habits,
    st.sampled_from([SliceLengths(10, 40), SliceLengths(5, 5), SliceLengths(30, 60), SliceLengths(2, 20)]),
    st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
    st.integers(1, 6),
    st.builds(
        HeadLimits,
        memory_soft_bytes=st.sampled_from([1 << 40, 0]),
        fold_entries_min=st.integers(1, 5),
        fold_step=st.sampled_from([0, 10, 65_536]),
    ),
    st.sampled_from([0, 0, 3, 10]),
)
ranges = st.lists(
    st.tuples(st.integers(0, 400), st.integers(1, 200), st.integers(1, 40), st.integers(1, 6)), min_size=1, max_size=4
)


@given(st.lists(record_parts, min_size=1, max_size=60), habits, habits, ranges)
@settings(max_examples=examples(150))
def test_raw_payloads_are_byte_equal_at_the_same_applied_offset(
    parts: list[tuple[int, list[tuple[int, int, float]]]],
    one: Habits,
    other: Habits,
    reads: list[tuple[int, int, int, int]],
) -> None:
    records = log_of(parts)
    heads = [replayed(records, habit) for habit in (one, other)]
    assert heads[0].applied_offset == heads[1].applied_offset
    covered_ms = max(head.state().coverage_start_ms for head in heads)
    for back, length, step, aggregation in reads:
        start = max(covered_ms, records[-1].broker_ms - back)
        answers = [payloads(head, start, start + length, step, aggregation) for head in heads]
        assert answers[0] == answers[1]


def log_of(parts: list[tuple[int, list[tuple[int, int, float]]]]) -> list[Record]:
    records: list[Record] = []
    broker_ms = START_MS
    for offset, (forward, samples) in enumerate(parts):
        broker_ms += forward
        stamped = tuple((number, broker_ms + late, value) for number, late, value in samples)
        records.append(Record(offset, broker_ms, stamped))
    return records


def replayed(records: list[Record], habit: Habits) -> Head:
    """A head that replayed from its start on. A head that began later covers times from its first record's time plus
    ahead.
    """
    first = min(habit.skip, len(records) - 1)
    skipped_ms = max((record.broker_ms for record in records[:first]), default=None)
    head = new_head(
        slices=habit.slices,
        limits=habit.limits,
        since_offset=first,
        from_start=first == 0,
        # A sample at t that counts has broker time >= t - ahead, so no skipped sample is newer than this.
        coverage_start_ms=-(1 << 40) if skipped_ms is None else skipped_ms + 15 + 1,
        series=len(SERIES),
    )
    at, rounds = first, 0
    while at < len(records):
        size = habit.batches[rounds % len(habit.batches)]
        apply(head, records[at : at + size])
        at += size
        rounds += 1
        if rounds % habit.maintain_every == 0:
            head.maintain()
    return head


def payloads(head: Head, start: int, end: int, step: int, aggregation: int) -> list[bytes]:
    refs = refs_of(head, sorted(SERIES, reverse=True))
    return [
        *payload(head.gather_raw(refs, start, end)),
        *payload(head.gather_raw(refs, start, end, step_ms=step, aggregation=aggregation)),
        *payload(head.gather_raw(refs, start, end, last_n=2)),
    ]


def payload(raw: RawResult) -> list[bytes]:
    return [raw.counts.tobytes(), raw.ts_ms.tobytes(), raw.values.tobytes()]
