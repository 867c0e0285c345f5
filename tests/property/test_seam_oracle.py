"""A read that spans memory and history equals a dict of all samples, or is refused, at any split between the two.

Head, chunks and codec are the real ones. A plain twin of the chunk stage fills history, at every state between the
close of a window and its drop from memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.data.heads import DAY_MS, SMALL_TIMES, Record, apply, bits, canonical_of, id_of, new_head
from support.examples import examples
from support.fakes.fake_history import FakeHistory, StagedLog
from support.oracles.head_twin import HeadTwin
from support.servers.queriers import TOPIC_ID, ServedHeads, one_store, select, sources_over, stored
from tsdb.client import SelectQuery, SelectResult
from tsdb.client.select import AGGREGATIONS
from tsdb.model.errors import Unavailable
from tsdb.query.service import QuerierService
from tsdb.reader.read_call import SelectLimits

SERIES = range(7)
SELECTOR = '{job="test"}'
START_MS = 10_000
WINDOW_MS = SMALL_TIMES.window_ms

values = st.sampled_from([0.0, -0.0, 1.0, 2.5, float("nan"), float("inf"), 1e-9, 7.0])
# Distance of a sample behind its record: live, out of order, late by less or more than a window, ahead.
behind = st.one_of(
    st.integers(-SMALL_TIMES.ahead_ms - 3, 12), st.integers(0, 60), st.integers(300, 1500), st.just(2 * DAY_MS)
)
samples = st.lists(st.tuples(st.sampled_from(SERIES), behind, values), max_size=6)
advances = st.one_of(st.integers(0, 30), st.integers(-5, 5), st.sampled_from([100, 400]))
log_parts = st.lists(st.tuples(advances, samples), min_size=3, max_size=40)
share = st.floats(0, 1)


@dataclass(frozen=True)
class Stage:
    """Begin of memory and the loaded position, each as a share of the log. more: windows emitted beyond it."""

    since: float
    maintained: float
    position: float
    emitted: float
    more: float


stages = st.builds(Stage, share, share, share, share, share)
# Places near which ranges begin and end, and how far from them.
edges = st.tuples(st.integers(-2, 9), st.sampled_from([-1, 0, 1, 7, 200]))
one_read = st.tuples(edges, edges, st.integers(1, 500), st.integers(1, 6), st.integers(1, 4))
reads = st.lists(one_read, min_size=1, max_size=5)


def records_of(parts: list[tuple[int, list[tuple[int, int, float]]]]) -> list[Record]:
    made: list[Record] = []
    broker_ms = START_MS
    for forward, some in parts:
        broker_ms += forward
        stamped = tuple((number, broker_ms - late, value) for number, late, value in some)
        made.append(Record(len(made), broker_ms, stamped))
    return made


class Case:
    """A partition in memory and history, and the twin with all its samples."""

    def __init__(self, records: list[Record], stage: Stage) -> None:
        self.twin = HeadTwin(SMALL_TIMES.ahead_ms)
        self.twin.apply(records)
        log = StagedLog(records, SMALL_TIMES)
        since = round(stage.since * len(records))
        self.head = new_head(
            hold_ms=60,
            since_offset=since,
            from_start=since == 0,
            coverage_start_ms=_coverage(records[:since]),
            series=len(SERIES),
        )
        held = records[since:]
        middle = round(stage.maintained * len(held))
        for some in (held[:middle], held[middle:]):
            if some:
                apply(self.head, some)
            self.head.maintain()
        self.history = FakeHistory()
        ends = [records[0].broker_ms - 3 * DAY_MS, *log.closed_ends()]
        self.position = round(stage.position * len(records))
        self.emitted_ms = ends[round(stage.emitted * (len(ends) - 1))]
        beyond = self.position + round(stage.more * (len(records) - self.position))
        log.put_into(self.history, beyond, ends[-1] if stage.more > 0.5 else self.emitted_ms)
        self.history.load(TOPIC_ID, 0, self.position, self.emitted_ms)
        served = ServedHeads({0: self.head})
        served.catch_up()
        self.sources = sources_over(one_store(served), self.history, window_ms=WINDOW_MS)
        self.service = QuerierService(self.sources, SelectLimits())

    def ask(self, start_ms: int, end_ms: int, **query: object) -> SelectResult | None:
        """The result; None when history is behind, after a check of the refusal."""
        try:
            return select(self.service, SelectQuery(SELECTOR, start_ms, end_ms, **query))  # type: ignore[arg-type]
        except Unavailable as refusal:
            reason = refusal.reason
        state = self.head.state()
        assert reason == "history_behind"
        assert not state.from_start
        assert state.coverage_start_ms > start_ms
        assert self.position < state.since_offset or self.emitted_ms < min(state.coverage_start_ms, end_ms)
        return None


def _coverage(before: list[Record]) -> int:
    return max((record.broker_ms for record in before), default=-(1 << 40)) + SMALL_TIMES.ahead_ms + 1


def answered(result: SelectResult) -> dict[int, dict[int, float]]:
    numbers = {canonical_of(number): number for number in SERIES}
    found = {}
    for one in result.series:
        number = numbers[one.canonical]
        assert one.series_id == id_of(number)
        assert (np.diff(one.ts_ms) > 0).all()
        found[number] = dict(zip(one.ts_ms.tolist(), one.values.tolist(), strict=True))
    assert (np.diff(result.series_ids.astype(object)) > 0).all()
    return found


@pytest.mark.slow
@given(log_parts, stages, reads)
@settings(max_examples=examples(250))
def test_any_split_between_memory_and_history_answers_as_the_twin(
    parts: list[tuple[int, list[tuple[int, int, float]]]],
    stage: Stage,
    asked: list[tuple[tuple[int, int], tuple[int, int], int, int, int]],
) -> None:
    case = Case(records_of(parts), stage)
    base_ms = START_MS - START_MS % WINDOW_MS
    check(case, START_MS - 3 * DAY_MS, 1 << 40, 40, 2, 2)
    for (first, near), (last, far), step_ms, aggregation, last_n in asked:
        start_ms, end_ms = base_ms + first * WINDOW_MS + near, base_ms + last * WINDOW_MS + far
        if start_ms < end_ms:
            check(case, start_ms, end_ms, step_ms, aggregation, last_n)


def check(case: Case, start_ms: int, end_ms: int, step_ms: int, aggregation: int, last_n: int) -> None:
    want = case.twin.samples(SERIES, start_ms, end_ms)
    raw = case.ask(start_ms, end_ms)
    if raw is None:
        return
    assert bits(answered(raw)) == bits(want)
    columns = case.ask(start_ms, end_ms, encoding="columns")
    assert columns is not None
    assert bits(answered(columns)) == bits(want)
    check_storage(case, start_ms, end_ms, columns)
    newest = case.ask(start_ms, end_ms, last_n=last_n)
    assert newest is not None
    assert bits(answered(newest)) == bits({n: dict(list(found.items())[-last_n:]) for n, found in want.items()})
    if end_ms - start_ms < 100_000 * step_ms:
        steps = case.ask(start_ms, end_ms, step_ms=step_ms, agg=AGGREGATIONS[aggregation - 1])
        assert steps is not None
        with np.errstate(all="ignore"):
            want_steps = case.twin.steps(SERIES, start_ms, end_ms, step_ms, aggregation)
        assert_same_numbers(answered(steps), want_steps)


def check_storage(case: Case, start_ms: int, end_ms: int, want: SelectResult) -> None:
    """A selection of PromQL, whose ranges include both ends, has the same arrays."""
    found = stored(case.sources, SELECTOR, start_ms, end_ms - 1)
    assert list(found.labels) == list(want.canonical)
    assert found.starts.tolist() == want.starts.tolist()
    assert found.ts_ms.tolist() == want.ts_ms.tolist()
    assert found.values.tobytes() == want.values.tobytes()


def assert_same_numbers(got: dict[int, dict[int, float]], want: dict[int, dict[int, float]]) -> None:
    """Sums of several NaN may give any NaN: the payload that survives depends on the machine."""
    assert got.keys() == want.keys()
    for number in want:
        assert list(got[number]) == list(want[number])
        np.testing.assert_array_equal(list(got[number].values()), list(want[number].values()))
