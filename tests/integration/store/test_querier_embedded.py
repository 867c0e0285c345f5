"""Attacks a querier over stores of different depth: real data goes the whole way through log, memory, chunks and
history, and is read at every stage; then by a querier over a store that began just now as well, and over an address
where nobody answers. Every answer equals what was written; in a healthy pipeline nothing is refused."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory
from support.servers.node import Node, store_options
from support.servers.pipeline import WINDOW_MS, NodeData, Pipeline
from support.servers.querier_node import QuerierNode
from support.servers.queriers import Context, stored
from tsdb.client import SelectQuery
from tsdb.log.interface import METRICS
from tsdb.model.errors import TsdbError
from tsdb.model.time_set import DEMO
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.query.sources import answered_total
from tsdb.v1 import reader_pb2

PARTITIONS = 3
WINDOWS = 12
SCRAPES = WINDOWS * WINDOW_MS // 5_000
OUTAGE = range(5, 7)  # Windows that end while no loader runs.
READS = 6  # Random reads at each stage.
LAST_READS = 200
SOURCES = ("memory", "history", "both")

Samples = dict[bytes, list[tuple[int, bytes]]]
"""{canonical labels: [(ts_ms, value as its bytes)]}."""


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[tuple[Pipeline, NodeData]]:
    data = NodeData(every=6, scrapes=SCRAPES)
    # Separate instances spread the series over the partitions.
    labels = [label.replace(b"instance\xff", b"instance\xff%d." % (row % 7)) for row, label in enumerate(data.labels)]
    log, history = LogFactory(f"sqlite:///{tmp_path}/log.db", ""), HistoryFactory(f"sqlite:///{tmp_path}/history.db")
    with log as logs, history as histories:
        logs.create(PARTITIONS, timestamp_type="CreateTime")
        histories.create()
        yield Pipeline(logs.open(), histories.open(), labels, int(data.ts_ms[0])), data


class Reads:
    """Reads through a querier, checked; `outcomes` counts answers and refusals."""

    def __init__(self, pipeline: Pipeline, querier: QuerierNode, rng: random.Random) -> None:
        self._pipeline = pipeline
        self._querier = querier
        self._rng = rng
        self._by_name: dict[bytes, list[int]] = {}
        for row, canonical in enumerate(pipeline.labels):
            self._by_name.setdefault(_name(canonical), []).append(row)
        self.outcomes: Counter[str] = Counter()

    def at(self, start_ms: int, end_ms: int, *, may_refuse: bool) -> None:
        """Read one metric; sometimes all metrics."""
        selector, rows = '{__name__=~".+"}', list(range(len(self._pipeline.labels)))
        if self._rng.random() > 0.1:
            name = self._rng.choice(list(self._by_name))
            selector, rows = name.decode(), self._by_name[name]
        encoding = self._rng.choice(["raw", "columns", "promql"])
        try:
            if encoding == "promql":
                got = self._stored(selector, start_ms, end_ms)
            else:
                got = self._ask(SelectQuery(selector, start_ms, end_ms, encoding=encoding))
        except (grpc.RpcError, TsdbError) as error:
            refusal = error if isinstance(error, TsdbError) else from_rpc_error(error)
            if not may_refuse or refusal.reason != "history_behind":
                raise refusal from error
            self.outcomes["refused"] += 1
            return
        self.outcomes["answered"] += 1
        assert got == self._pipeline.want(rows, start_ms, end_ms), f"{selector} in [{start_ms}, {end_ms})"

    def _stored(self, selector: str, start_ms: int, end_ms: int) -> Samples:
        """A selection of PromQL over the querier's sources."""
        found = stored(self._querier.sources, selector, start_ms, end_ms - 1, caller=Context(60.0))
        return {
            labels: _pairs(found.ts_ms[start:end], found.values[start:end])
            for labels, (start, end) in zip(found.labels, itertools.pairwise(found.starts.tolist()), strict=True)
        }

    def _ask(self, query: SelectQuery) -> Samples:
        """Read without retries, so that each refusal is visible."""
        call = query.call()
        reader = call.reader()
        for message in self._querier.stub.Select(cast(reader_pb2.SelectRequest, call.request), timeout=60.0):
            reader.add(message)
        return {series.canonical: _pairs(series.ts_ms, series.values) for series in reader.finish().series}

    def random_ones(self, count: int, first_ms: int, last_ms: int, *, may_refuse: bool) -> None:
        """Ranges anywhere, of any length."""
        for _ in range(count):
            start_ms, end_ms = sorted(self._rng.sample(range(first_ms - WINDOW_MS, last_ms + WINDOW_MS), 2))
            self.at(start_ms, end_ms, may_refuse=may_refuse)

    def edges(self, edges: Sequence[int], *, may_refuse: bool) -> None:
        """Ranges that begin or end at, just before and just after each of these times."""
        for edge in edges:
            for near in (-1, 0, 1):
                self.at(edge + near, edge + near + WINDOW_MS, may_refuse=may_refuse)
                self.at(edge - WINDOW_MS // 3, edge + near, may_refuse=may_refuse)


def _pairs(ts_ms: NDArray[np.int64], values: NDArray[np.float64]) -> list[tuple[int, bytes]]:
    return list(zip(ts_ms.tolist(), (value.tobytes() for value in values), strict=True))


def _name(canonical: bytes) -> bytes:
    parts = canonical.split(b"\xff")
    return parts[parts.index(b"__name__") + 1]


def _scrape(pipeline: Pipeline, data: NodeData, at: int, rng: random.Random) -> None:
    """One scrape, and things that come out of order, twice, late by seconds and by many windows."""
    now_ms = int(data.ts_ms[at])
    there = np.flatnonzero(~np.isnan(data.values[:, at])).tolist()
    fresh = [(row, now_ms, float(data.values[row, at])) for row in there]
    held_back = [sample for sample in fresh if rng.random() < 0.02]
    pipeline.write([sample for sample in fresh if sample not in held_back], now_ms + rng.randrange(200))
    again = [(row, ts, value + 1.0) for row, ts, value in fresh if rng.random() < 0.02]
    late = [(row, now_ms - rng.randrange(12 * WINDOW_MS), value) for row, _, value in fresh if rng.random() < 0.01]
    pipeline.write([*again, *late, *held_back], now_ms + 200 + rng.randrange(4_000))


def test_stores_of_any_depth_and_history_answer_as_one(pipeline: tuple[Pipeline, NodeData]) -> None:
    way, data = pipeline
    rng = random.Random(7)
    first_ms = int(data.ts_ms[0])
    ends = list(range(first_ms - first_ms % WINDOW_MS + WINDOW_MS, int(data.ts_ms[-1]) + 1, WINDOW_MS))
    topic_id = way.log.topic_id(METRICS)
    before = {source: answered_total.labels(source)._value.get() for source in SOURCES}
    with Node(way.log, store_options(DEMO), clock=way.clock) as node:
        with QuerierNode(
            [node.address], way.history, topic_id=topic_id, partitions=PARTITIONS, time_set=DEMO
        ) as querier:
            reads = Reads(way, querier, rng)
            at = 0
            for number, end_ms in enumerate(ends):
                while at < len(data.ts_ms) and data.ts_ms[at] < end_ms + DEMO.grace_ms + DEMO.ahead_ms:
                    _scrape(way, data, at, rng)
                    at += 1
                node.wait_ready()
                healthy = number not in OUTAGE
                # These windows are closed, and may not be emitted yet.
                reads.random_ones(READS, first_ms, end_ms, may_refuse=True)
                with way.chunking(end_ms - WINDOW_MS):
                    # These windows are emitted, and not loaded yet.
                    reads.random_ones(READS, first_ms, end_ms, may_refuse=True)
                if healthy:
                    way.load(end_ms - WINDOW_MS)
                    reads.random_ones(READS, first_ms, end_ms, may_refuse=False)
                    reads.edges([end_ms - WINDOW_MS, rng.choice(ends[: number + 1])], may_refuse=False)
            assert node.status().state.coverage_start_ms > first_ms + 5 * WINDOW_MS, "memory let go of most of it"
        _read_all_again(way, node, ends, rng)
    by = {source: answered_total.labels(source)._value.get() - before[source] for source in SOURCES}
    assert min(by.values()) > 20, f"each of memory, history and both answered: {by}"
    assert reads.outcomes["refused"] < reads.outcomes["answered"], reads.outcomes


def _read_all_again(way: Pipeline, node: Node, ends: Sequence[int], rng: random.Random) -> None:
    """Reads by a querier over two stores. One began just now and has fewer samples, and each goes away in its turn."""
    topic_id = way.log.topic_id(METRICS)
    with Node(way.log, store_options(DEMO), clock=way.clock).wait_ready_on_entry() as fresh:
        for addresses in ([node.address, fresh.address], [fresh.address, "127.0.0.1:1"]):
            with QuerierNode(
                addresses, way.history, topic_id=topic_id, partitions=PARTITIONS, time_set=DEMO
            ) as querier:
                reads = Reads(way, querier, rng)
                reads.edges(ends, may_refuse=False)
                reads.random_ones(LAST_READS // 2, ends[0], ends[-1], may_refuse=False)
                assert reads.outcomes["refused"] == 0
