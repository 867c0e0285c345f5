"""The drill of reads at every stage of every window: open, in mid-emission, emitted, loaded, gone from memory."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from typing import Self

from support.data.recordings import Batch
from support.oracles.history_oracle import Reads
from support.servers.logs import wait_until
from support.servers.node import Node, store_options
from support.servers.querier_node import QuerierNode
from support.servers.way import Way
from tsdb.log.interface import METRICS

DAY_MS = 24 * 3600 * 1000
SHARE_MIN = 0.99
OUTAGE = range(8, 12)  # Windows that close while no loader runs.


class HistoryDrill:
    """The drill of one way, with a store, a chunker and a querier over both. A context manager.

    healthy: reads while a loader runs in every window. outage: reads from the first window without a loader until a
    loader has caught up.
    """

    def __init__(self, way: Way, rng: random.Random, *, hold_ms: int | None = None) -> None:
        self._way = way
        self._hold_ms = hold_ms or way.times.least_hold_ms
        self._rng = rng
        self._stack = ExitStack()
        self._late_ms: list[int] = []

    def __enter__(self) -> Self:
        way = self._way
        options = store_options(way.times, hold_ms=self._hold_ms)
        self.node = self._stack.enter_context(Node(way.log, options, clock=way.clock))
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
        """New reads with separate counts."""
        return Reads(self._way.oracle, self.querier, self._rng, self._missing)

    def run(self, window_ends: Sequence[int], *, outage: Collection[int], random_reads: int) -> None:
        """Feed window by window; no loader runs in the windows with these numbers."""
        for number, end_ms in enumerate(window_ends):
            caught_up = number not in outage and number - 1 not in outage
            self._to_emitted(self.healthy if caught_up else self.outage, end_ms, random_reads)
            if number not in outage:
                self._way.load()
                self._look(self.healthy, "loaded", end_ms, random_reads)

    def read_evicted(self, window_ends: Sequence[int], *, random_reads: int) -> None:
        """Read every edge, random ranges, and samples that came days late, after memory has dropped all these
        windows.
        """
        way, window_ms = self._way, self._way.times.window_ms
        # The chunk stage's ticks let that time pass in the log.
        gone_ms = way.feed_all() + self._hold_ms + 2 * window_ms
        way.emit(gone_ms - gone_ms % window_ms)
        self.node.wait_ready()
        way.load()
        self._tokens()
        edges, first_ms = [window_ends[0] - window_ms, *window_ends], way.oracle.min_ts_ms
        wait_until(lambda: min(status.state.coverage_start_ms for status in self.node.statuses()) > edges[-1])
        self.healthy.around("gone from memory", edges, window_ms)
        self.healthy.anywhere("gone from memory", random_reads, edges[0], edges[-1])
        self.healthy.anywhere("days late", random_reads // 10, first_ms, edges[-1])
        self.healthy.one("days late", first_ms, edges[-1] + 2 * window_ms, everything=True)

    def write_late(self, reads: Reads, stage: str) -> None:
        """Write samples that are minutes, hours and days late, and the same timestamps again. The next read must have
        each of them.
        """
        way, times = self._way, self._way.times
        now_ms = way.clock.now_ms()
        delays_ms = [times.grace_ms + times.late_minute_ms, 2 * times.window_ms, 6 * times.window_ms, 3 * DAY_MS]
        row = self._rng.randrange(len(way.oracle.labels))
        for at, delay_ms in enumerate(delays_ms):
            ts_ms = now_ms - delay_ms - self._rng.randrange(times.window_ms)
            for again in range(2):
                way.write(Batch(now_ms, [((row + at) % len(way.oracle.labels), ts_ms, self._rng.random() + again)]))
                self._late_ms.append(ts_ms)
                self.read_late(reads, stage, newest=1)

    def read_late(self, reads: Reads, stage: str, *, newest: int = 0) -> None:
        """Read the times of all such samples, or of the newest ones."""
        self._tokens()
        for ts_ms in self._late_ms[-newest:]:
            reads.one(stage, ts_ms, ts_ms + 1, everything=True)

    def summary(self) -> str:
        """Summary of the answers."""
        return f" healthy\n{self.healthy.summary()}\n while no loader ran\n{self.outage.summary()}"

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

    def _look(self, reads: Reads, stage: str, end_ms: int, random_reads: int) -> None:
        window_ms = self._way.times.window_ms
        self._tokens()
        reads.around(stage, [end_ms], window_ms)
        reads.anywhere(stage, random_reads, end_ms - 25 * window_ms, end_ms + window_ms)

    def _tokens(self) -> None:
        self.healthy.after = self.outage.after = list(self._way.tokens.values())

    def _missing(self, start_ms: int, end_ms: int) -> bool:
        return self._way.missing(self.node, start_ms, end_ms)


def read_at_every_stage(way: Way, *, seed: int, random_reads: int, last_reads: int) -> None:
    """Run all windows, some of them without a loader. Prints the answers and their sources."""
    ends = way.recording.window_ends
    with HistoryDrill(way, random.Random(seed)) as drill:
        drill.run(ends, outage=OUTAGE, random_reads=random_reads)
        drill.read_evicted(ends, random_reads=last_reads)
        print(
            f"\n{way.oracle.samples} samples of {len(way.oracle.labels)} series in {len(ends)} windows",
            drill.summary(),
            sep="\n",
        )
        assert drill.healthy.share() >= SHARE_MIN
        assert min(drill.healthy.sources().values()) > 20, "each of memory, history and both answered"
        assert way.dead_letters() == 0
