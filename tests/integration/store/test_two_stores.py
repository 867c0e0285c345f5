"""Attacks promise 4: two stores at the same applied offset give the same bytes, whatever their histories were.

One store follows the log from its beginning and fetches little at a time; the other starts hours later, fetches much,
seals and merges at other times, and so finds other samples late.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np

from support.data.feeder import Feeder
from support.data.heads import Sample
from support.servers.logs import LogFactory
from support.servers.node import SMALL_HEADS, Node, make_topics, store_options
from tsdb.client.options import wire_matchers
from tsdb.model.time_set import PRODUCTION, SliceLengths
from tsdb.v1 import reader_pb2

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
HOURS = 16  # Longer than the hold: the first store has dropped the oldest part, and the second never read it.
PHASES = 4
PARTITIONS = 2
SELECTORS = (
    '{__name__=~"m_.*"}',
    "m_1",
    'm_2{instance=~"i[13]"}',
    '{job="test",instance!="i0"}',
)
EARLY = store_options(records_max=7)
LATER = store_options(
    slices=SliceLengths(2 * MINUTE_MS, 6 * MINUTE_MS),
    workers=1,
    hold_ms=PRODUCTION.least_hold_ms + HOUR_MS,
    limits=replace(SMALL_HEADS, fold_entries_min=1, fold_step=50),
)


class Writer:
    """Fills both partitions over some hours, ending now: live samples, duplicates, late ones of all ages."""

    def __init__(self, factory: LogFactory, seed: int) -> None:
        self.log = make_topics(factory, PARTITIONS)
        self.now_ms = time.time_ns() // 1_000_000
        self._feeder = Feeder(self.log)
        self._rng = np.random.default_rng(seed)
        for partition in range(PARTITIONS):
            self._feeder.announce(self._numbers(partition), partition, self.now_ms)

    def phase(self, number: int) -> None:
        """The n-th part of the hours, and its samples."""
        span_ms = HOURS * HOUR_MS // PHASES
        start_ms = self.now_ms - (PHASES - number) * span_ms
        for partition in range(PARTITIONS):
            times = np.sort(self._rng.integers(start_ms, start_ms + span_ms, 150))
            self._feeder.many(partition, [(int(at_ms), list(self._samples(partition, int(at_ms)))) for at_ms in times])

    def _numbers(self, partition: int) -> range:
        return range(6 * partition, 6 * partition + 6)

    def _samples(self, partition: int, at_ms: int) -> Iterator[Sample]:
        for number in self._numbers(partition):
            value = float(self._rng.choice([self._rng.normal(), np.nan, -0.0, 7.0]))
            ago = int(self._rng.integers(int(self._rng.choice([1, 90, 20 * MINUTE_MS]))))
            late = int(self._rng.integers(5 * HOUR_MS)) if self._rng.random() < 0.2 else 0
            # Times of a grid, so that samples of one time meet.
            yield number, (at_ms - ago - late) // 500 * 500, value


def requests(seed: int, start_ms: int, end_ms: int) -> Iterator[reader_pb2.SelectRequest]:
    """Random selects within what both hold."""
    rng = random.Random(seed)
    for _ in range(40):
        left, right = sorted(rng.randint(start_ms, end_ms) for _ in range(2))
        if rng.random() < 0.2:
            left, right = start_ms, end_ms
        request = reader_pb2.SelectRequest(
            matchers=wire_matchers(rng.choice(SELECTORS)), start_ms=left, end_ms=right + 1
        )
        shape = rng.randrange(3)
        if shape == 1:
            request.last_n = rng.randint(1, 5)
        elif shape == 2:
            request.step_ms = rng.randint(10_000, HOUR_MS)
            request.aggregation = rng.choice(list(reader_pb2.Aggregation.values())[1:])
        yield request


def payload(node: Node, request: reader_pb2.SelectRequest) -> tuple[list[bytes], list[bytes]]:
    """Series blocks and raw frames of an answer, as bytes."""
    blocks, frames = [], []
    for message in node.stub.Select(request, timeout=60.0):
        blocks += [block.SerializeToString(deterministic=True) for block in message.series]
        frames += [frame.SerializeToString(deterministic=True) for frame in message.raw]
    return blocks, frames


def check_equal(first: Node, second: Node, seed: int, now_ms: int) -> None:
    """Check that both stores, at the end of the log, give the same answers for ranges that both have."""
    states = [node.client.coverage() for node in (first, second)]
    ends = [[(state.applied_offset, state.next_offset) for state in of] for of in states]
    assert ends[0] == ends[1]
    start_ms = max(state.coverage_start_ms for of in states for state in of)
    samples = 0
    for request in requests(seed, start_ms, now_ms):
        got, want = payload(second, request), payload(first, request)
        assert got == want, f"RAW differs for {request}"
        samples += sum(map(len, want[1]))
        if not (request.step_ms or request.last_n):
            check_equal_columns(first, second, request)
    assert samples, "nothing was compared"


def check_equal_columns(first: Node, second: Node, request: reader_pb2.SelectRequest) -> None:
    """Check that the decoded COLUMNS of both stores equal RAW."""
    selector = next(s for s in SELECTORS if list(request.matchers) == wire_matchers(s))
    span = request.start_ms, request.end_ms
    raw = first.ask(selector, *span)
    for node in (first, second):
        columns = node.ask(selector, *span, encoding="columns")
        assert columns.canonical == raw.canonical
        np.testing.assert_array_equal(columns.starts, raw.starts)
        np.testing.assert_array_equal(columns.ts_ms, raw.ts_ms)
        np.testing.assert_array_equal(columns.values.view(np.int64), raw.values.view(np.int64))


@contextmanager
def started(node: Node) -> Iterator[Node]:
    with node.wait_ready_on_entry():
        yield node


def test_two_stores_with_other_histories_give_the_same_bytes_at_the_same_offset(log_factory: LogFactory) -> None:
    writer = Writer(log_factory, seed=11)
    with ExitStack() as stack:
        early = stack.enter_context(started(Node(writer.log, EARLY)))
        for phase in range(PHASES - 1):
            writer.phase(phase)
            early.wait_ready()
        later = stack.enter_context(started(Node(log_factory.open(), LATER)))
        assert later.status().state.since_offset != early.status().state.since_offset
        check_equal(early, later, 1, writer.now_ms)
        writer.phase(PHASES - 1)
        for node in (early, later):
            node.wait_ready()
        check_equal(early, later, 2, writer.now_ms)
        newest = stack.enter_context(started(Node(log_factory.open(), store_options(records_max=50))))
        check_equal(early, newest, 3, writer.now_ms)
        assert len({node.status().state.since_offset for node in (early, later, newest)}) == 3
        assert len({node.store.partitions[0].head.sizes().slices for node in (early, later)}) == 2
