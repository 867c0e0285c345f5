"""Oracle: the right answer of every read and write. It has, by (series, timestamp), all samples that count, each with
its order; the highest order wins. It is filled with records as they land in the log, and with the samples of imports.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ingest.pipeline import AcceptedWrite
from support.simulation.details import float_of, identities, is_histogram
from tsdb.codec.chunk.chunk import decode_chunk
from tsdb.codec.records.log_record import decode_records
from tsdb.log.interface import LogRecord
from tsdb.model.errors import Unavailable
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import TimeSet
from tsdb.v1 import common_pb2

METRICS_PER_SOURCE = 2

Sample = tuple[int, int, int]
"""Series id, ts_ms, identity (support.simulation.details): bits of the value and number of the details."""
Orders = dict[tuple[int, int], tuple[int, int]]
"""(order, identity) by (series id, ts_ms)."""


class Violation(AssertionError):
    """A promise that the product broke."""


@dataclass(frozen=True)
class Source:
    """A numbered series, and where it lives."""

    number: int
    canonical: bytes
    series_id: int
    pack_id: int
    partition: int


def source_of(number: int, partitions: int) -> Source:
    """Series 2n and 2n + 1 are two metrics of one source, so of two packs in one partition."""
    instance = number // METRICS_PER_SOURCE
    canonical = canonical_labels(
        {"__name__": f"m{number % METRICS_PER_SOURCE}", "job": "sim", "instance": str(instance)}
    )
    placed = PlacementRule().place(canonical)
    return Source(number, canonical, series_id(canonical), placed.pack_id, partition_of(placed.placement, partitions))


@dataclass
class Entry:
    """One sample. bits: its identity. sure: whether readers must show it, unless another sample outranks it. A sample
    of an import is not sure before the import's end.

    lost: whether its record in the log is corrupt. Then no reader can show it, and every answer without it names a
    hole.
    """

    order: int
    bits: int
    sure: bool = True
    lost: bool = False


Excused = Callable[[Source, int], bool]
"""Whether an answer names a hole over the samples of a series at a time."""


def excused_by(holes: Iterable[common_pb2.Hole]) -> Excused:
    """Whether one of these covers the sample."""
    named = list(holes)
    return lambda source, ts_ms: any(
        hole.start_ms <= ts_ms < hole.end_ms and hole.pack_id in (0, source.pack_id) for hole in named
    )


def nothing_excused(source: Source, ts_ms: int) -> bool:
    """An answer without holes."""
    return False


class Oracle:
    """`entries`: samples by partition, series id and time, ascending by order."""

    def __init__(self, sources: Sequence[Source], times: TimeSet) -> None:
        self.sources = {source.series_id: source for source in sources}
        self._times = times
        self.entries: defaultdict[int, defaultdict[int, defaultdict[int, list[Entry]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(list))
        )
        self.records: defaultdict[int, list[tuple[int, list[Sample]]]] = defaultdict(list)

    def add_record(self, partition: int, record: LogRecord, *, lost: bool = False) -> None:
        """Add a record that landed in the log. Samples too far ahead of it do not count.

        lost: its bytes in the log are damaged; `record` has those that were sent.
        """
        value = record.value or b""
        decoded = decode_records(value, np.array([0, len(value)], np.int64))
        samples = zip(
            decoded.series_id.tolist(),
            decoded.ts_ms.tolist(),
            identities(decoded.value, decoded.details),
            strict=True,
        )
        counting = [sample for sample in samples if sample[1] <= record.broker_ms + self._times.ahead_ms]
        for series, ts_ms, bits in counting:
            self.add(partition, series, ts_ms, Entry(record.offset, bits, lost=lost))
        if not lost:
            self.records[partition].append((record.offset, counting))

    def add(self, partition: int, series: int, ts_ms: int, entry: Entry) -> None:
        """One sample; of one record and time the last stands."""
        entries = self.entries[partition][series][ts_ms]
        entries[:] = [one for one in entries if one.order != entry.order]
        entries.append(entry)
        entries.sort(key=lambda one: one.order)

    def below(self, partition: int, position: int, end_ms: int) -> Iterator[tuple[int, int, Entry]]:
        """(series id, ts_ms, the winner below an offset) before a time."""
        for series, by_time in self.entries[partition].items():
            for ts_ms, entries in by_time.items():
                if ts_ms < end_ms:
                    found = [one for one in entries if one.order < position and one.sure]
                    if found:
                        yield series, ts_ms, found[-1]

    def allowed(
        self, partition: int, series: int, ts_ms: int, applied_offset: int, *, newer: bool, excused: bool = False
    ) -> tuple[set[int], bool]:
        """(bits that an answer may show, whether it may show nothing). newer: whether samples beyond applied_offset may
        come from history.

        excused: the answer names a hole there, so any sample may be missing. Nothing at all is allowed where a lost
        sample counts and no hole is named.
        """
        entries = self.entries[partition][series].get(ts_ms, [])
        must = [] if excused else [one for one in entries if one.sure and one.order <= applied_offset]
        floor = must[-1].order if must else -1
        found = {must[-1].bits} if must and not must[-1].lost else set()
        for one in entries:
            if one.order > floor and not one.lost and (newer or one.order <= applied_offset):
                found.add(one.bits)
        return found, not must


@dataclass(frozen=True)
class Answered:
    """The state of one partition in an answer. alone: memory reached the start of the range.

    moved: stores went on in the middle of the read, so that it may have more than it states.
    """

    applied_offset: int
    coverage_start_ms: int
    alone: bool
    moved: bool = False

    @classmethod
    def of(
        cls, state: common_pb2.PartitionState, start_ms: int, least_offset: int = -1, *, moved: bool = False
    ) -> Answered:
        """least_offset: the lowest offset of a record that the reader asked for."""
        applied = state.applied_offset if state.HasField("applied_offset") else -1
        alone = state.from_start or state.coverage_start_ms <= start_ms
        return cls(max(applied, least_offset), state.coverage_start_ms, alone, moved)

    def is_newer(self, ts_ms: int) -> bool:
        """Whether a sample of that time may be newer than the applied offset: history may be further than memory."""
        return self.moved or (ts_ms < self.coverage_start_ms and not self.alone)


def check_samples(
    oracle: Oracle,
    partition: int,
    range_ms: tuple[int, int],
    got: dict[int, dict[int, int]],
    stated: Answered,
    wanted: Callable[[Source], bool],
    excused: Excused = nothing_excused,
) -> bool:
    """Raises Violation unless `got` (bits by series id and time) is the oracle's answer; whether there was only one."""
    start_ms, end_ms = range_ms
    only = True
    for series, source in oracle.sources.items():
        if source.partition != partition or not wanted(source):
            continue
        mine = got.get(series, {})
        for ts_ms in sorted(oracle.entries[partition][series].keys() | mine.keys()):
            if not start_ms <= ts_ms < end_ms:
                continue
            bits, absent = oracle.allowed(
                partition,
                series,
                ts_ms,
                stated.applied_offset,
                newer=stated.is_newer(ts_ms),
                excused=excused(source, ts_ms),
            )
            shown = mine.get(ts_ms)
            only = only and len(bits) + absent <= 1
            if (shown is None and not absent) or (shown is not None and shown not in bits):
                raise Violation(
                    f"partition {partition}, {source.canonical!r} at {ts_ms}: shown {_value(shown)}, allowed"
                    f" {[_value(one) for one in bits]}{' or nothing' if absent else ''}; {stated}; entries"
                    f" {oracle.entries[partition][series].get(ts_ms)}"
                )
    return only


@lru_cache(4096)
def samples_of_chunk(value: bytes) -> Orders:
    """All samples of one encoded chunk part."""
    fragment = decode_chunk(value)
    series = np.repeat(fragment.series_id, np.diff(fragment.sample_start)).tolist()
    rows = zip(
        series,
        fragment.ts_ms.tolist(),
        fragment.order.tolist(),
        identities(fragment.value, fragment.details),
        strict=True,
    )
    return {(one, ts_ms): (order, bits) for one, ts_ms, order, bits in rows}


def _value(bits: int | None) -> str:
    """A number, and for a sample with details the number of these."""
    if bits is None:
        return "nothing"
    kind = " histogram" if is_histogram(bits) else ""
    return f"{float_of(bits)}{kind} {bits >> 64 if bits >> 64 > 0 else ''}".strip()


# Answers to senders.

Place = tuple[int, int, int, int]
"""Partition, record offset, series id, ts_ms."""


@dataclass(frozen=True)
class Request:
    """samples: (partition, series id, ts_ms, identity) of each. announces: whether the request may wait for an
    announcement. Later requests may overtake it then.
    """

    samples: Sequence[tuple[int, int, int, int]]
    answer: Future[AcceptedWrite]
    announces: bool = False


def check_answers(requests: Sequence[Request], oracle: Oracle, counts: Counter[str]) -> None:
    """Raises Violation. counts: receives what the senders were answered, and the records of several requests."""
    named: Counter[tuple[int, int]] = Counter()
    newest: dict[Place, int] = {}
    for request in requests:
        if not request.answer.done():
            raise Violation(f"a request is not answered: {request.samples}")
        error = request.answer.exception()
        if error is None:
            named.update(_check_tokens(request, oracle, newest))
            counts["accepted"] += 1
        elif isinstance(error, Unavailable):
            counts["write refused"] += 1
        else:
            raise error
    counts["joined"] += sum(count > 1 for count in named.values())
    # Requests that may have waited, or that failed in part, may be anywhere in a record.
    loose = [request for request in requests if request.announces or request.answer.exception() is not None]
    anywhere = {sample[:3] for request in loose for sample in request.samples}
    for (partition, offset, series, ts_ms), bits in newest.items():
        if (partition, series, ts_ms) in anywhere:
            continue
        shown = [entry.bits for entry in oracle.entries[partition][series][ts_ms] if entry.order == offset]
        if shown != [bits]:
            raise Violation(
                f"record {offset} of partition {partition} has {shown} for series {series} at {ts_ms}; the request"
                f" that came last has {bits}"
            )


def _check_tokens(request: Request, oracle: Oracle, newest: dict[Place, int]) -> set[tuple[int, int]]:
    """newest: receives by record the value of each sample, which is of the request that came last."""
    tokens = {(token.partition, token.record_offset) for token in request.answer.result().tokens}
    for partition, series, ts_ms, bits in request.samples:
        # Of one record and time the oracle keeps the last sample, which may be of another request.
        orders = {(partition, entry.order) for entry in oracle.entries[partition][series][ts_ms]}
        if not orders & tokens:
            raise Violation(f"no record of {tokens} holds series {series} at {ts_ms}: partition {partition}, {orders}")
        for _, offset in orders & tokens:
            newest[partition, offset, series, ts_ms] = bits
    return tokens
