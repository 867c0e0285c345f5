"""The drill of reads at every stage of every window: open, in mid-emission, emitted, loaded, gone from memory."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Self

from support.node import Node, store_options
from support.past_oracle import Reads
from support.querier_node import QuerierNode
from support.way import Way
from tsdb.log.interface import METRICS


class PastDrill:
    """Of one way, with a store, a chunker and a querier over both. A context manager.

    healthy: reads while a loader comes by in every window. outage: reads from the first window without one until a
    loader has caught up.
    """

    def __init__(self, way: Way, rng: random.Random) -> None:
        self._way = way
        self._rng = rng
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        way = self._way
        self.node = self._stack.enter_context(Node(way.log, store_options(way.times), clock=way.clock))
        self.querier = self._stack.enter_context(
            QuerierNode(
                [self.node.address],
                way.history,
                topic_id=way.log.topic_id(METRICS),
                partitions=way.partitions,
                time_set=way.times,
            )
        )
        self.node.wait_ready()
        self._stack.enter_context(way.chunking())
        self.healthy, self.outage = self.reads(), self.reads()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def reads(self) -> Reads:
        """Counted on their own."""
        return Reads(self._way.oracle, self.querier.stub, self._rng, self._missing)

    def run(self, window_ends: Sequence[int], *, outage: Collection[int], random_reads: int) -> None:
        """Feed window by window; no loader runs in the windows with these numbers."""
        for number, end_ms in enumerate(window_ends):
            caught_up = number not in outage and number - 1 not in outage
            self._to_emitted(self.healthy if caught_up else self.outage, end_ms, random_reads)
            if number not in outage:
                self._way.load()
                self._look(self.healthy, "loaded", end_ms, random_reads)

    def read_evicted(self, window_ends: Sequence[int], *, random_reads: int) -> None:
        """Once memory has let go of nearly all: every edge, random ranges, and those that came days late."""
        way = self._way
        self._pass(way.feed_all() + way.times.window_ms)
        way.load()
        self._tokens()
        self.healthy.around(
            "gone from memory", [window_ends[0] - way.times.window_ms, *window_ends], way.times.window_ms
        )
        first_ms = way.oracle.min_ts_ms
        self.healthy.anywhere("gone from memory", random_reads, window_ends[0] - way.times.window_ms, window_ends[-1])
        self.healthy.anywhere("days late", random_reads // 10, first_ms, window_ends[-1])
        self.healthy.one("days late", first_ms, window_ends[-1] + way.times.window_ms, everything=True)
        assert max(status.state.coverage_start_ms for status in self.node.statuses()) > window_ends[-4]

    def told(self) -> str:
        """What was answered."""
        return f" healthy\n{self.healthy.told()}\n while no loader ran\n{self.outage.told()}"

    def _to_emitted(self, reads: Reads, end_ms: int, random_reads: int) -> None:
        way, times = self._way, self._way.times
        way.feed(end_ms + times.grace_ms)
        self._look(reads, "open", end_ms, random_reads)
        # By then every partition has had records past the window's end and grace.
        way.feed(end_ms + times.grace_ms + times.spread_ms // 2)
        way.emit_some(end_ms)
        self._look(reads, "in mid-emission", end_ms, random_reads)
        way.emit(end_ms)
        self._look(reads, "emitted", end_ms, random_reads)

    def _pass(self, now_ms: int) -> None:
        """The chunk stage's ticks let that time pass in the log."""
        last_end_ms = now_ms - now_ms % self._way.times.window_ms
        self._way.emit(last_end_ms)

    def _look(self, reads: Reads, stage: str, end_ms: int, random_reads: int) -> None:
        window_ms = self._way.times.window_ms
        self._tokens()
        reads.around(stage, [end_ms], window_ms)
        reads.anywhere(stage, random_reads, end_ms - 25 * window_ms, end_ms + window_ms)

    def _tokens(self) -> None:
        for reads in (self.healthy, self.outage):
            reads.after = list(self._way.tokens.values())

    def _missing(self, start_ms: int, end_ms: int) -> bool:
        return self._way.missing(self.node, start_ms, end_ms)
