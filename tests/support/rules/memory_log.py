"""A log in memory with a ruler's view of it: records in partitions, a storage that may lag, and a follower."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tsdb.model.clock import ManualClock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.selector import Matcher
from tsdb.promql.evaluate.query import DEFAULTS
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.rules.alerts import Labels
from tsdb.rules.files import RuleFile
from tsdb.rules.follower import FollowedSamples
from tsdb.rules.groups import RuleSample
from tsdb.rules.memory import MemoryStorage
from tsdb.rules.placement import Partitions, RulePlacement
from tsdb.rules.ruler import Ruler, RuleRead, RulerOptions, RulerPorts, WrittenResults

PARTITIONS = 3


@dataclass(frozen=True, slots=True)
class Record:
    broker_ms: int
    samples: Sequence[RuleSample]


@dataclass
class MemoryLog:
    """Implements reads and writes of rulers. rng: decides how far a read has applied the log beyond what it must
    contain; None: everything.

    complete_ms: the time up to which all samples are readable; None: now less the grace. read_error, write_error,
    rewind_error: errors that the next calls raise. placement: partitions of series; None: by their bytes, and rulers
    know nothing of it. lagging: partitions of which no read succeeds, and whose times are not complete.
    """

    clock: ManualClock
    rng: random.Random | None = None
    grace_ms: int = 0
    records: list[list[Record]] = field(default_factory=lambda: [[] for _ in range(PARTITIONS)])
    storage: MemoryStorage = field(default_factory=MemoryStorage)
    applied: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    labels: dict[int, Labels] = field(default_factory=dict)
    complete_ms: int | None = None
    read_error: TsdbError | None = None
    write_error: TsdbError | None = None
    rewind_error: TsdbError | None = None
    placement: RulePlacement | None = None
    lagging: frozenset[int] = frozenset()
    reads: int = 0
    asked: list[int] = field(default_factory=list)  # Times whose completeness rulers asked for.

    def append(self, samples: Sequence[RuleSample]) -> dict[int, int]:
        """Append samples, one record a partition. Returns the offset of the record by partition."""
        parts: dict[int, list[RuleSample]] = {}
        for sample in samples:
            canonical = canonical_labels(sample.labels)
            self.labels[series_id(canonical)] = sample.labels
            number = zlib.crc32(canonical) % PARTITIONS
            if self.placement is not None:
                number = self.placement.of_series(sample.labels)
            parts.setdefault(number, []).append(sample)
        for number, part in parts.items():
            self.records[number].append(Record(self.clock.now_ms(), part))
        return {number: len(self.records[number]) - 1 for number in parts}

    def write(self, samples: Sequence[RuleSample]) -> WrittenResults:
        """The write port of a ruler."""
        if self.write_error is not None:
            if self.rng is not None and self.rng.random() < 0.5:  # The log has them, and the answer is lost.
                self.append(samples)
            raise self.write_error
        last = self.append(samples)
        return WrittenResults(0, [series_id(canonical_labels(sample.labels)) for sample in samples], last)

    @contextmanager
    def open_read(self, after: Mapping[int, int] | None, partitions: Partitions = None) -> Iterator[RuleRead]:
        """A read that contains these records, and maybe more. None: those of the reads before. No read of a partition
        that lags succeeds."""
        lag = self.lagging if partitions is None else self.lagging & partitions
        if lag:
            raise Unavailable(f"partitions {sorted(lag)} lag")
        if after is None:
            yield RuleRead(self.storage, DEFAULTS)
            return
        for number, records in enumerate(self.records):
            if partitions is not None and number not in partitions:
                continue
            least = max(self.applied[number], after.get(number, -1) + 1)
            self._apply(number, self.rng.randint(least, len(records)) if self.rng else len(records))
        yield RuleRead(self, DEFAULTS)

    def _apply(self, number: int, end: int) -> None:
        for record in self.records[number][self.applied[number] : end]:
            for sample in record.samples:
                self.storage.add(sample.labels, [(sample.ts_ms, sample.value)])
        self.applied[number] = end

    def apply_all(self) -> MemoryStorage:
        """The storage with all records."""
        for number, records in enumerate(self.records):
            self._apply(number, len(records))
        return self.storage

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        self.reads += 1
        if self.read_error is not None:
            raise self.read_error
        return self.storage.select(matchers, start_ms, end_ms)

    def read_labels(
        self, ids: NDArray[np.uint64], partition: int, first_ms: int, last_ms: int, after: Mapping[int, int]
    ) -> dict[int, Labels]:
        """The port of a ruler for labels."""
        if partition in self.lagging:
            raise Unavailable(f"partition {partition} lags")
        if self.read_error is not None:
            raise self.read_error
        return {number: self.labels[number] for number in ids.tolist()}

    def ruler(self, files: Sequence[RuleFile] | list[RuleFile], options: RulerOptions) -> Ruler:
        """A new ruler over this log, as of a new process."""
        follower = MemoryFollower(self)
        ports = RulerPorts(
            lambda: files,
            self.open_read,
            follower.missing,
            self.write,
            follower,
            self.read_labels,
            self.clock,
            placement=self.placement,
        )
        return Ruler(ports, options)


class MemoryFollower:
    """Implements Follower from the end of the log on."""

    def __init__(self, log: MemoryLog) -> None:
        self._log = log
        self._next = [len(records) for records in log.records]

    def follow(self, newest_ms: int) -> Iterator[FollowedSamples]:
        for number, records in enumerate(self._log.records):
            rows = [
                (offset, sample)
                for offset in range(self._next[number], len(records))
                for sample in records[offset].samples
                if sample.ts_ms <= newest_ms
            ]
            self._next[number] = len(records)
            if rows:
                yield FollowedSamples(
                    number,
                    np.array([offset for offset, _ in rows], np.int64),
                    np.array([series_id(canonical_labels(sample.labels)) for _, sample in rows], np.uint64),
                    np.array([sample.ts_ms for _, sample in rows], np.int64),
                )

    def missing(self, at_ms: int, partitions: Partitions = None) -> str:
        """The port of a ruler for completeness. Ticks pass every partition, so that the clock alone decides."""
        if self._log.lagging if partitions is None else self._log.lagging & partitions:
            return "a partition lags"
        self._log.asked.append(at_ms)
        complete_ms = self._log.complete_ms
        if complete_ms is None:
            complete_ms = self._log.clock.now_ms() - self._log.grace_ms
        return "" if at_ms <= complete_ms else "partition 1 is behind"

    def next_offsets(self) -> dict[int, int]:
        return dict(enumerate(self._next))

    def settled_ms(self) -> int | None:
        return self._log.clock.now_ms()

    def rewind(self, since_ms: int) -> None:
        if self._log.rewind_error is not None:
            raise self._log.rewind_error
        for number, records in enumerate(self._log.records):
            found = next((offset for offset, one in enumerate(records) if one.broker_ms >= since_ms), len(records))
            self._next[number] = min(found, self._next[number])

    def ends(self) -> dict[int, int]:
        return {number: len(records) for number, records in enumerate(self._log.records)}

    def close(self) -> None:
        """There is nothing to release."""
