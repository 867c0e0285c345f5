"""Histograms and start timestamps in the answers of the Reader service, of a store and of a querier over it.

Every answer has the details of its samples as they were written last, in both encodings and in a live tail. Steps of
histograms are refused by name.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pytest

from support.data.feeder import Feeder
from support.data.heads import Record, canonical_of, details_of
from support.fakes.fake_history import FakeHistory
from support.servers.logs import LogFactory
from support.servers.node import Node, make_topics
from support.servers.querier_node import QuerierNode
from tsdb.client import Client, SelectResult
from tsdb.model.details import joined_details, same_details
from tsdb.model.errors import InvalidRequest
from tsdb.v1 import common_pb2

MINUTE_MS = 60_000
MINUTES = 150
NUMBERS = (0, 1, 2)
FLOATS = (3,)
EVERYTHING = '{__name__=~"m_.*"}'

Written = dict[tuple[int, int], tuple[float, int]]
"""(value, number of the details) by (number of the series, ts_ms)."""


class Contents:
    """Minutes of samples of series that change between floats and histograms; some come twice, some late."""

    def __init__(self, factory: LogFactory) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        self.start_ms = self.now_ms - (MINUTES + 100) * MINUTE_MS
        log = make_topics(factory)
        self.feeder = Feeder(log)
        self.written: Written = {}
        self.feeder.announce([*NUMBERS, *FLOATS], 0, self.now_ms)
        rng = np.random.default_rng(7)
        records = [self._record(minute, rng) for minute in range(MINUTES)]
        self.feeder.records(0, records)
        self.store = Node(log)

    def _record(self, minute: int, rng: np.random.Generator) -> Record:
        broker_ms = self.now_ms - (MINUTES - minute) * MINUTE_MS
        samples, kinds = [], []
        for number in (*NUMBERS, *FLOATS):
            late_ms = MINUTE_MS * int(rng.integers(1, 60)) if rng.random() < 0.3 else 0
            ts_ms, value = broker_ms - 10 - late_ms, float(minute)
            kind = int(rng.integers(0, 12)) if number in NUMBERS else int(rng.integers(0, 2))
            samples.append((number, ts_ms, value))
            kinds.append(kind)
            self.written[number, ts_ms] = value, kind
        return Record(minute, broker_ms, tuple(samples), details=tuple(kinds))

    def want(self, start_ms: int, end_ms: int, last_n: int = 0) -> dict[int, list[tuple[int, float, int]]]:
        """(ts_ms, value, number of the details) of the samples of each series."""
        found: dict[int, list[tuple[int, float, int]]] = {}
        for (number, ts_ms), (value, kind) in sorted(self.written.items()):
            if start_ms <= ts_ms < end_ms:
                found.setdefault(number, []).append((ts_ms, value, kind))
        return {number: rows[-last_n:] for number, rows in found.items()}


@pytest.fixture(scope="module", params=["store", "querier"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Contents, Client]]:
    with LogFactory(f"sqlite:///{tmp_path_factory.mktemp('reader')}/log.db", "") as factory:
        made = Contents(factory)
        with made.store.wait_ready_on_entry():
            if request.param == "store":
                yield made, made.store.client
                return
            topic_id = made.store.store.topic_id
            with QuerierNode([made.store.address], FakeHistory(), topic_id=topic_id, partitions=2) as querier:
                yield made, querier.client


def check(result: SelectResult, want: dict[int, list[tuple[int, float, int]]]) -> None:
    numbers = {canonical_of(number): number for number in (*NUMBERS, *FLOATS)}
    order = [numbers[canonical] for canonical in result.canonical]
    assert sorted(order) == sorted(want)
    rows = [row for number in order for row in want[number]]
    assert result.ts_ms.tolist() == [ts_ms for ts_ms, _, _ in rows]
    values = np.array([value for _, value, _ in rows])
    assert np.array_equal(result.values.view(np.int64), values.view(np.int64))
    assert same_details(result.details, details_of([kind for _, _, kind in rows], values))


@pytest.mark.parametrize("encoding", ["raw", "columns"])
@pytest.mark.parametrize(("back", "forth"), [(MINUTES + 90, 0), (100, 30), (9, 2), (3, 3)])
def test_samples_have_their_details_in_both_encodings(
    served: tuple[Contents, Client], encoding: str, back: int, forth: int
) -> None:
    contents, client = served
    start_ms, end_ms = contents.now_ms - back * MINUTE_MS, contents.now_ms - forth * MINUTE_MS + 1
    result = client.select(EVERYTHING, start_ms, end_ms, encoding=encoding)
    check(result, contents.want(start_ms, end_ms))


@pytest.mark.parametrize("last_n", [1, 5])
def test_the_newest_samples_have_their_details(served: tuple[Contents, Client], last_n: int) -> None:
    contents, client = served
    result = client.select(EVERYTHING, contents.start_ms, contents.now_ms, last_n=last_n)
    check(result, contents.want(contents.start_ms, contents.now_ms, last_n))


def test_steps_of_histograms_are_refused_and_steps_of_floats_are_answered(served: tuple[Contents, Client]) -> None:
    contents, client = served
    span = contents.start_ms, contents.now_ms
    with pytest.raises(InvalidRequest) as refused:
        client.select(EVERYTHING, *span, step_ms=MINUTE_MS, agg="max")
    assert refused.value.reason == "native_histograms"
    result = client.select('m_0{instance="i1"}', *span, step_ms=MINUTE_MS, agg="max")
    assert result.samples > MINUTES // 2
    assert result.details is None, "aggregates have no start timestamps"


def test_a_live_tail_has_the_details_of_what_is_applied(served: tuple[Contents, Client]) -> None:
    contents, client = served
    numbers, ts_ms = (2, 5, 0, 1), contents.now_ms + 5
    samples = tuple((number, ts_ms, 1.0) for number in (*NUMBERS, *FLOATS))
    tokens = [
        common_pb2.Token(topic_id=state.topic_id, partition=state.partition, record_offset=state.applied_offset)
        for state in client.coverage()
        if not state.partition
    ]
    contents.feeder.records(0, [Record(0, contents.now_ms, samples, details=numbers)])
    parts, count = [], 0
    for batch in client.watch(EVERYTHING, partitions=[0], resume=tokens, duration_s=30.0):
        parts.append((len(batch), batch.details))
        count += len(batch)
        if count == len(samples):
            break
    assert same_details(joined_details(parts), details_of(numbers, np.ones(4)))
