"""The expected answer of every read, from plain dicts, and a reader that compares each answer bit for bit."""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import grpc
import numpy as np
from numpy.typing import NDArray

from support.data.recordings import Batch
from support.servers.logs import WITHIN_S
from support.servers.querier_node import QuerierNode
from support.servers.queriers import Context, stored
from tsdb.client import ReadOptions, SelectQuery, SelectResult
from tsdb.client.select import SelectKeywords
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.model.labels import metric_name, series_id
from tsdb.model.time_set import TimeSet
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.query.sources import answered_total
from tsdb.v1 import common_pb2, reader_pb2

EVERYTHING = '{__name__=~".+"}'
SOURCES = ("memory", "history", "both")
PROMQL_SHARE = 0.5  # Method of the reads of columns.

SampleArrays = tuple[NDArray[np.int64], NDArray[np.int64]]


class HistoryOracle:
    """The last value by series and time. Rows are indexes of `labels`."""

    def __init__(self, labels: Sequence[bytes], times: TimeSet) -> None:
        self.labels = list(labels)
        self._ahead_ms = times.ahead_ms
        self._known: list[dict[int, float]] = [{} for _ in labels]
        self._sorted: dict[int, SampleArrays] = {}

    @property
    def samples(self) -> int:
        """Number of distinct (series, time) pairs so far."""
        return sum(map(len, self._known))

    @property
    def min_ts_ms(self) -> int:
        """The oldest timestamp of all samples, ms."""
        return min(min(known) for known in self._known if known)

    def add(self, batch: Batch) -> None:
        """Add an acknowledged batch. Samples further ahead than readers accept are ignored."""
        for row, ts_ms, value in batch.samples:
            if ts_ms <= batch.broker_ms + self._ahead_ms:
                self._known[row][ts_ms] = value
                self._sorted.pop(row, None)

    def want(self, rows: Iterable[int], start_ms: int, end_ms: int) -> dict[bytes, SampleArrays]:
        """Times and value bits of each of these series that has any sample in [start_ms, end_ms)."""
        found = {}
        for row in rows:
            ts_ms, bits = self._columns(row)
            first, end = np.searchsorted(ts_ms, [start_ms, end_ms])
            if first < end:
                found[self.labels[row]] = ts_ms[first:end], bits[first:end]
        return found

    def _columns(self, row: int) -> SampleArrays:
        if row not in self._sorted:
            pairs = sorted(self._known[row])
            values = np.array([self._known[row][ts] for ts in pairs], np.float64)
            self._sorted[row] = np.array(pairs, np.int64), values.view(np.int64)
        return self._sorted[row]


class Reads:
    """Reads of one or all metrics through a querier, each checked. A part of the reads of all samples are selections of
    PromQL over the querier's sources.

    may_refuse: (start_ms, end_ms) -> whether a part of that range is really unavailable; else a refusal must not
    last. after: tokens that answers must include. counts: answers and refusals by stage.
    """

    def __init__(
        self,
        oracle: HistoryOracle,
        querier: QuerierNode,
        rng: random.Random,
        may_refuse: Callable[[int, int], bool],
    ) -> None:
        self._oracle = oracle
        self._querier = querier
        self._rng = rng
        self._may_refuse = may_refuse
        self._rows_of: dict[bytes, list[int]] = defaultdict(list)
        for row, canonical in enumerate(oracle.labels):
            self._rows_of[metric_name(canonical)].append(row)
        self._before = _sources()
        self.after: list[common_pb2.Token] = []
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)

    def around(self, stage: str, edges: Iterable[int], length_ms: int) -> None:
        """Read ranges that begin or end at these times, one millisecond before them and one after."""
        for edge in edges:
            for near in (edge - 1, edge, edge + 1):
                self.one(stage, near, near + 1 + self._rng.randrange(length_ms))
                self.one(stage, near - 1 - self._rng.randrange(length_ms), near)

    def anywhere(self, stage: str, count: int, start_ms: int, end_ms: int) -> None:
        """Read random ranges within [start_ms, end_ms)."""
        for _ in range(count):
            first, last = sorted(self._rng.sample(range(start_ms, end_ms), 2))
            self.one(stage, first, last)

    def one(self, stage: str, start_ms: int, end_ms: int, *, everything: bool | None = None) -> bool:
        """Make one read. Returns whether it was answered."""
        if everything or (everything is None and self._rng.random() < 0.1):
            selector, rows = EVERYTHING, list(range(len(self._oracle.labels)))
        else:
            name = self._rng.choice(list(self._rows_of))
            selector, rows = f'{{__name__="{name.decode()}"}}', self._rows_of[name]
        plain = SelectQuery(selector, start_ms, end_ms, options=ReadOptions(after=self.after))
        query = dataclasses.replace(plain, **self._form(start_ms, end_ms))
        promql = query.encoding == "columns" and self._rng.random() < PROMQL_SHARE
        how = f"{query.agg} by {query.step_ms} ms, last {query.last_n}, as {'PromQL' if promql else query.encoding}"
        where = f"{stage}: {selector} in [{start_ms}, {end_ms}), {how}"
        answer = self._ask(query, stage, where, self._stored if promql else self._select)
        if answer is not None:
            want = self._oracle.want(rows, start_ms, end_ms)
            _assert_equal(answer, {one: _reduced(columns, query) for one, columns in want.items()}, where)
        return answer is not None

    def _form(self, start_ms: int, end_ms: int) -> SelectKeywords:
        """Mostly reads of all samples, sometimes one sample per step or the newest few."""
        chance = self._rng.random()
        if chance < 0.1:
            step_ms = 1 + self._rng.randrange(max(1, (end_ms - start_ms) // 3))
            return {"step_ms": step_ms, "agg": self._rng.choice(["last", "count"])}
        if chance < 0.2:
            return {"last_n": self._rng.randrange(1, 9)}
        return {"encoding": self._rng.choice(["raw", "columns"])}

    def _ask(
        self, query: SelectQuery, stage: str, where: str, read: Callable[[SelectQuery], SelectResult]
    ) -> SelectResult | None:
        """The answer; None for a range that is really unavailable.

        Another refusal must end while time stands still: a partition may be behind the log for a moment, and a running
        loader may load the range after the refusal.
        """
        give_up_at = time.monotonic() + WITHIN_S
        while True:
            try:
                answer = read(query)
            except (grpc.RpcError, TsdbError) as error:
                refusal = error if isinstance(error, TsdbError) else from_rpc_error(error)
                assert isinstance(refusal, Unavailable | Overloaded), f"{where}: {refusal!r}"
                if self._may_refuse(query.start_ms, query.end_ms):
                    self.counts[stage]["refused"] += 1
                    return None
                self.counts[stage]["asked again"] += 1
                assert time.monotonic() < give_up_at, f"{where} is refused although all of it is there: {refusal}"
                time.sleep(0.05)
            else:
                self.counts[stage]["answered"] += 1
                return answer

    def summary(self) -> str:
        """Answers and refusals by stage, their share, and the sources of partitions' answers."""
        lines = [
            f"  {stage}: {one['answered']} answered, {one['refused']} refused, {one['asked again']} asked again"
            for stage, one in self.counts.items()
        ]
        by = ", ".join(f"{source} {count}" for source, count in self.sources().items())
        return "\n".join([*lines, f"  share answered {100 * self.share():.2f} %; partitions answered by {by}"])

    def share(self) -> float:
        """Share of the reads that were answered."""
        total = sum(self.counts.values(), Counter[str]())
        return total["answered"] / (total["answered"] + total["refused"])

    def sources(self) -> dict[str, int]:
        """Number of partitions in these reads by source: memory, history or both."""
        now = _sources()
        return {source: now[source] - self._before[source] for source in SOURCES}

    def _select(self, query: SelectQuery) -> SelectResult:
        call = query.call()
        reader = call.reader()
        for message in self._querier.stub.Select(cast(reader_pb2.SelectRequest, call.request), timeout=60.0):
            reader.add(message)
        return reader.finish()

    def _stored(self, query: SelectQuery) -> SelectResult:
        assert isinstance(query.selector, str)
        sources, options = self._querier.sources, query.options or ReadOptions()
        found = stored(sources, query.selector, query.start_ms, query.end_ms - 1, options, caller=Context(60.0))
        # A slow machine fetches high watermarks late. The answer still has the samples of its tokens.
        others = [warning for warning in found.warnings if "is behind the log: lagging" not in warning]
        assert not others
        ids = np.array([series_id(labels) for labels in found.labels], np.uint64)
        return SelectResult(ids, found.labels, found.starts, found.ts_ms, found.values, None, [])


def _reduced(columns: SampleArrays, query: SelectQuery) -> SampleArrays:
    ts_ms, bits = columns
    if query.last_n:
        return ts_ms[-query.last_n :], bits[-query.last_n :]
    if not query.step_ms:
        return columns
    step = (ts_ms - query.start_ms) // query.step_ms
    last = np.flatnonzero(np.append(step[1:] != step[:-1], True))
    counts = np.diff(last, prepend=-1).astype(np.float64).view(np.int64)
    return query.start_ms + step[last] * query.step_ms, bits[last] if query.agg == "last" else counts


def _assert_equal(got: SelectResult, want: dict[bytes, SampleArrays], where: str) -> None:
    found = {series.canonical: series for series in got.series}
    missing, more = want.keys() - found.keys(), found.keys() - want.keys()
    assert not missing, f"{where}: series missing {missing}"
    assert not more, f"{where}: more series {more}"
    for canonical, (ts_ms, bits) in want.items():
        series = found[canonical]
        place = f"{where}, {canonical!r}"
        odd_ms = np.setxor1d(ts_ms, series.ts_ms)
        assert not len(odd_ms), f"{place}: {len(ts_ms)} wanted, {len(series.ts_ms)} came; not in both: {odd_ms[:5]}"
        assert np.array_equal(series.ts_ms, ts_ms), f"{place}: out of order or twice"
        differ = np.flatnonzero(np.ascontiguousarray(series.values).view(np.int64) != bits)
        assert not len(differ), f"{place}: other values at {ts_ms[differ][:3]}"


def _sources() -> dict[str, int]:
    return {source: int(answered_total.labels(source)._value.get()) for source in SOURCES}
