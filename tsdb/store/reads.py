"""Reads of a store over the heads of its partitions: what its Reader service and a querier of the same process call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tsdb.answer.answer import Answer, LabelsAnswer, SeriesAnswer, WatchAnswer
from tsdb.answer.spec import (
    LabelsSpec,
    ReadOptions,
    SelectSpec,
    SeriesSpec,
    WatchSpec,
    highest_offsets,
    partitions_of,
)
from tsdb.answer.state import MemoryState
from tsdb.head.head import Head, HeadState
from tsdb.model.errors import Overloaded
from tsdb.model.placement import DEFAULT_PLACEMENT_LABELS
from tsdb.ops.grpc.slots import waiting
from tsdb.ops.metrics import adder, counter, histogram, observer
from tsdb.reader.cardinality import cardinality_spec, count
from tsdb.reader.read_call import (
    WATCHES_MAX,
    Caller,
    ReadCall,
    ReadCalls,
    ReadWork,
    SelectLimits,
    check_values,
    texts_bytes,
    values_max,
)
from tsdb.store import select, series
from tsdb.store.applied import AppliedSignal
from tsdb.store.partition import Partition, ReadinessSnapshot, ReadStates, ReadStatesCache, Tolerance
from tsdb.store.watch import Watch
from tsdb.v1 import reader_pb2
from tsdb.wire.state import decode_options, encode_header

AFTER_WAIT_MAX_S = 30.0  # Bounds the wait of a caller without a deadline.
ANSWER_SHARE = 0.05  # Part of a caller's time left that is kept for sending the answer.
REFRESH_S = 1.0  # Longest wait of a read for fresh high watermarks.
TEXTS_A_PIECE = 1024  # Names or values between two checks of a read of labels: some 0.3 ms.

series_total = counter("tsdb_store_selected_series_total", "Series in Select answers.")
samples_total = counter("tsdb_store_selected_samples_total", "Samples in Select answers; whole columns count in full.")
select_seconds = histogram(
    "tsdb_store_select_gather_seconds", "Time to gather a Select answer, before its first frame."
)
add_series, add_samples, observe_select_seconds = adder(series_total), adder(samples_total), observer(select_seconds)
watches_refused_total = counter("tsdb_store_watches_refused_total", "Watch streams refused because too many are open.")


class StoreReads:
    """Answers reads from the heads of `partitions`, on the thread of the caller. Specs are checked before.

    call: the call of the read. work: the bounds on its work here; None: those of the call.
    """

    def __init__(
        self,
        topic_id: str,
        partitions: Mapping[int, Partition],
        applied: AppliedSignal,
        limits: SelectLimits,
        placement_labels: Sequence[str] = DEFAULT_PLACEMENT_LABELS,
        max_lag_ms: int | None = None,
        refresh: Callable[[float], None] = lambda within_s: None,
    ) -> None:
        """max_lag_ms: reads without their own bound are refused above this lag. refresh: fetches high watermarks within
        some seconds."""
        self.topic_id = topic_id
        self._max_lag_ms = max_lag_ms
        self._refresh = refresh
        self._placement_labels = placement_labels
        self.partitions = partitions
        self._applied = applied
        self._limits = limits
        self._memory = select.ReadMemory()
        self._watches = threading.BoundedSemaphore(WATCHES_MAX)

    def states(self, *, sizes: bool = False) -> list[MemoryState]:
        """The states of all partitions now. sizes: whether series, samples and bytes are summed."""
        if sizes:
            return [partition.status().memory_state() for partition in self.partitions.values()]
        found = []
        for partition in self.partitions.values():
            head, snapshot = partition.evaluate()
            found.append(partition.memory_state(snapshot, head.state()))
        return found

    def select(self, spec: SelectSpec, call: ReadCall, work: ReadWork | None = None) -> Answer:
        """The whole answer. Raises as `tsdb.store.select.gather`."""
        limits = self._limits.lowered(spec.series_max, spec.samples_max, spec.bytes_max)
        partitions = self._ready_partitions(spec.options, call)
        tolerance = Tolerance.of(spec.options, self._max_lag_ms)
        began_s = time.perf_counter()
        try:
            answer = select.gather(partitions, spec, tolerance, limits, self._memory, work or call)
        finally:
            observe_select_seconds(time.perf_counter() - began_s)
        counts = answer.body.counts
        assert counts is not None, "the answer is whole"
        add_series(counts.series)
        add_samples(counts.samples)
        return answer

    def series(self, spec: SeriesSpec, call: ReadCall, work: ReadWork | None = None) -> Iterator[SeriesAnswer]:
        """The answer is exact, or an error. See tsdb.store.series."""
        partitions = self._ready_partitions(spec.options, call)
        tolerance = Tolerance.of(spec.options, self._max_lag_ms)
        limits = self._limits.lowered(spec.series_max, 0, 0)
        found = series.find(partitions, spec, tolerance, limits, work or call)
        yield from series.answers(found, spec, work or call)

    def labels(self, spec: LabelsSpec, call: ReadCall, work: ReadWork | None = None) -> LabelsAnswer:
        """Raises OutOfCoverage and HoleInRange, where the read has a start; Overloaded (values_limit)."""
        work = work or call
        texts: set[str] = set()
        counted = 0  # Texts whose memory is reserved.
        end_ms, limit = spec.needed_end_ms, values_max(spec)
        reads = self._label_reads(spec.options, call, spec.start_ms, end_ms)
        work.check_going()
        for head in reads.heads:
            if spec.name is None:
                texts.update(head.index.label_names(spec.matchers, work.check_going))
            else:
                found = head.index.label_values(spec.name, spec.matchers, limit=limit, check_going=work.check_going)
                texts.update(found)
                if len(texts) > limit:
                    check_values(spec, len(texts))
            # Few new texts of a partition are not worth a check, unless its series are searched.
            if spec.matchers or len(texts) - counted >= TEXTS_A_PIECE:
                counted = len(texts)
                work.hold(texts_bytes(texts))
                work.check_going()
        if len(texts) > counted:
            work.hold(texts_bytes(texts))
        states = reads.states(self._memory.states)
        if spec.start_ms is not None:
            states.check_coverage(spec.start_ms)
            Tolerance.of(spec.options).check_holes(states.holed, spec.start_ms, end_ms)
        return LabelsAnswer(states.states, states.warnings(end_ms), texts)

    def cardinality(
        self, request: reader_pb2.CardinalityRequest, call: ReadCall, work: ReadWork | None = None
    ) -> reader_pb2.CardinalityResponse:
        query = cardinality_spec(request)
        reads = self._label_reads(decode_options(request.options), call, None, None)
        response = count([head.index for head in reads.heads], query, self._placement_labels, work or call)
        states = reads.states(self._memory.states)
        response.header.CopyFrom(encode_header(states.states, states.warnings(None)))
        return response

    def watch(self, spec: WatchSpec, caller: Caller, calls: ReadCalls) -> Iterator[WatchAnswer]:
        """Answers while the caller is active. Raises Overloaded (watches_limit), and as Watch."""
        wanted = {p: self.partitions[p] for p in partitions_of(spec.partitions, self.partitions)}
        watch = Watch(wanted, spec.matchers, highest_offsets(spec.resume, self.topic_id, wanted))
        if not self._watches.acquire(blocking=False):
            watches_refused_total.inc()
            raise Overloaded(
                f"{WATCHES_MAX} watches are open, which is the limit",
                reason="watches_limit",
                retry_after_s=5.0,
                limit=WATCHES_MAX,
            )
        try:
            yield from watch.answers(self._applied, caller, calls)
        finally:
            self._watches.release()

    def _ready_partitions(self, options: ReadOptions, call: ReadCall) -> list[Partition]:
        """The partitions to answer from, after they have applied the records that `after` names.

        With a bound on the lag, their high watermarks are fetched where only the age of these exceeds it.
        """
        numbers = partitions_of(options.partitions, self.partitions)
        if options.after:
            tokens = highest_offsets(options.after, self.topic_id, self.partitions)
            if not self._applied.has(self.partitions, tokens):
                # A caller that leaves ends the wait: the notification makes `wait_for` check the call.
                call.add_callback(self._applied.notify)
                with waiting():
                    self._applied.wait_for(self.partitions, tokens, _wait_s(call), call.check_going)
        partitions = [self.partitions[number] for number in numbers]
        max_lag_ms = self._max_lag_ms if options.max_lag_ms is None else options.max_lag_ms
        if max_lag_ms is None or options.allow_stale:
            return partitions
        if any(partition.awaits_watermark(max_lag_ms) for partition in partitions):
            with waiting():
                self._refresh(min(_wait_s(call), REFRESH_S))
        return partitions

    def _label_reads(
        self, options: ReadOptions, call: ReadCall, start_ms: int | None, end_ms: int | None
    ) -> _LabelReads:
        tolerance = Tolerance.of(options, self._max_lag_ms)
        reads = _LabelReads(self._ready_partitions(options, call))
        for partition in reads.partitions:
            head, snapshot = partition.evaluate()
            if snapshot.readiness.reason or tolerance.max_lag_ms is not None:
                tolerance.check_fresh(snapshot, end_ms)
            before = head.state()
            if start_ms is not None and not before.reaches(start_ms):
                partition.memory_state(snapshot, before).check_coverage(start_ms)
            reads.heads.append(head)
            reads.snapshots.append(snapshot)
            reads.before.append(before)
        return reads


@dataclass(frozen=True, slots=True)
class _LabelReads:
    """Partitions whose labels are read: the head of each, its readiness and its state before the read."""

    partitions: list[Partition]
    heads: list[Head] = field(default_factory=list)
    snapshots: list[ReadinessSnapshot] = field(default_factory=list)
    before: list[HeadState] = field(default_factory=list)

    def states(self, last: ReadStatesCache) -> ReadStates:
        """The states of the read, from its beginning until now."""
        through = []
        for head, before in zip(self.heads, self.before, strict=True):
            now = head.state()
            through.append(before if now is before else before.through(now))
        return last.of(self.partitions, self.snapshots, through)


def _wait_s(call: ReadCall) -> float:
    """How long a read may wait for records: less than its deadline, so that time remains to return the error."""
    return min(call.time_remaining() * (1 - ANSWER_SHARE), AFTER_WAIT_MAX_S)
