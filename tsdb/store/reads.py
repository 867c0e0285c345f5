"""Reads of a store over the heads of its partitions, for its Reader service and for a querier of the same process.

An answer is exact or an error. Readiness is evaluated before the samples are gathered. The applied offset is taken
before the series are selected, coverage and holes at the time of the read. So an answer contains everything that it
claims.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from tsdb.answer.answer import (
    JOINED_SAMPLES_MAX,
    Answer,
    AnswerBody,
    AnswerCounts,
    ExemplarsAnswer,
    LabelsAnswer,
    PartitionAnswer,
    RawResult,
    SeriesAnswer,
    WatchAnswer,
)
from tsdb.answer.spec import (
    ExemplarsSpec,
    LabelsSpec,
    ReadOptions,
    SelectSpec,
    SeriesSpec,
    WatchSpec,
    highest_offsets,
    partitions_of,
)
from tsdb.answer.state import MemoryState
from tsdb.head.details import with_detailed
from tsdb.head.gather_many import HeadsSnapshotCache, ManyRefs, columns_many, snapshot_many
from tsdb.head.head import Head, HeadState
from tsdb.head.read.gather import COLLECT_PER_REF, SAMPLE_BYTES
from tsdb.model.errors import Overloaded
from tsdb.model.placement import DEFAULT_PLACEMENT_LABELS
from tsdb.ops.grpc.slots import waiting
from tsdb.ops.metrics import adder, counter, histogram
from tsdb.reader.read_call import (
    NO_BOUNDS,
    WATCHES_MAX,
    Caller,
    ReadCall,
    ReadCalls,
    ReadWork,
    SelectLimits,
)
from tsdb.store import exemplars, series
from tsdb.store.applied import AppliedSignal
from tsdb.store.partition import Partition, ReadinessSnapshot, ReadStatesCache, Tolerance
from tsdb.store.selection import KeptColumns, Selection, Selections, Touched, may_join
from tsdb.store.series import LabelReads
from tsdb.store.watch import Watch

AFTER_WAIT_MAX_S = 30.0  # Bounds the wait of a caller without a deadline.
COPIES = 2  # Columns are gathered, then kept; open samples are collected, then sorted.
ANSWER_SHARE = 0.05  # Part of a caller's time left that is kept for sending the answer.
FEW_SERIES = 10_000  # A search over these takes at most some 10 ms, with a new regular expression.
REFRESH_S = 1.0  # Longest wait of a read for fresh high watermarks.

series_total = counter("tsdb_store_selected_series_total", "Series in Select answers.")
samples_total = counter("tsdb_store_selected_samples_total", "Samples in Select answers; whole columns count in full.")
select_seconds = histogram(
    "tsdb_store_select_gather_seconds", "Time to gather a Select answer, before its first frame."
)
add_series, add_samples = adder(series_total), adder(samples_total)
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
        self.placement_labels = placement_labels
        self.partitions = partitions
        self._applied = applied
        self._limits = limits
        self._memory = ReadMemory()
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
        """The whole answer. Raises as `gather`."""
        limits = self._limits.lowered(spec.series_max, spec.samples_max, spec.bytes_max)
        partitions = self._ready_partitions(spec.options, call)
        tolerance = Tolerance.of(spec.options, self._max_lag_ms)
        began_s = time.perf_counter()
        try:
            answer = gather(partitions, spec, tolerance, limits, self._memory, work or call)
        finally:
            select_seconds.observe(time.perf_counter() - began_s)
        counts = answer.body.counts
        assert counts is not None, "the answer is whole"
        add_series(counts.series)
        add_samples(counts.samples)
        return answer

    def is_small(self, spec: SelectSpec) -> bool:
        """Whether a select begins without a wait and finds its series at once: no writer holds a head, and the series
        are known, or the store has few. The limits of the spec bound their samples."""
        options = spec.options
        if options.after or (self._max_lag_ms if options.max_lag_ms is None else options.max_lag_ms) is not None:
            return False
        heads = [partition.head for partition in self.partitions.values()]
        if any(head.contents.is_held for head in heads):
            return False
        series = sum([head.index.series for head in heads])
        return series <= FEW_SERIES or self._memory.selections.has_current(heads, spec)

    def series(self, spec: SeriesSpec, call: ReadCall, work: ReadWork | None = None) -> Iterator[SeriesAnswer]:
        """The answer is exact, or an error. See tsdb.store.series."""
        partitions = self._ready_partitions(spec.options, call)
        tolerance = Tolerance.of(spec.options, self._max_lag_ms)
        limits = self._limits.lowered(spec.series_max, 0, 0)
        found = series.find(partitions, spec, tolerance, limits, work or call)
        yield from series.answers(found, spec, work or call)

    def labels(self, spec: LabelsSpec, call: ReadCall, work: ReadWork | None = None) -> LabelsAnswer:
        """The answer is exact, or an error. See tsdb.store.series."""
        reads = self.label_reads(spec.options, call, spec.start_ms, spec.needed_end_ms)
        return series.labels(reads, spec, work or call)

    def exemplars(self, spec: ExemplarsSpec, call: ReadCall, work: ReadWork | None = None) -> Iterator[ExemplarsAnswer]:
        """The exemplars in memory. See tsdb.store.exemplars."""
        reads = self.label_reads(spec.options, call, None, spec.end_ms)
        yield from exemplars.exemplars(reads, spec, work or call)

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

    def label_reads(
        self, options: ReadOptions, call: ReadCall, start_ms: int | None = None, end_ms: int | None = None
    ) -> LabelReads:
        """The partitions of a read of labels, in a state that it accepts. None: no bound."""
        partitions = self._ready_partitions(options, call)
        return LabelReads.of(partitions, self._memory.states, Tolerance.of(options, self._max_lag_ms), start_ms, end_ms)


def _wait_s(call: ReadCall) -> float:
    """How long a read may wait for records: less than its deadline, so that time remains to return the error."""
    return min(call.time_remaining() * (1 - ANSWER_SHARE), AFTER_WAIT_MAX_S)


class ReadMemory:
    """Caches that reads share; all of it can be computed again. Thread-safe."""

    def __init__(self) -> None:
        self.selections = Selections()
        self.heads_snapshots = HeadsSnapshotCache()
        self.states = ReadStatesCache()


def gather(
    partitions: list[Partition],
    query: SelectSpec,
    tolerance: Tolerance,
    limits: SelectLimits,
    memory: ReadMemory,
    work: ReadWork = NO_BOUNDS,
) -> Answer:
    """The whole answer, so that an error leaves no partial answer.

    partitions: ascending. work: called between pieces of work and before memory is taken; it may raise.
    """
    heads: list[Head] = []
    snapshots: list[ReadinessSnapshot] = []
    before: list[HeadState] = []
    for partition in partitions:
        head, one = partition.evaluate()
        if one.readiness.reason or tolerance.max_lag_ms is not None:
            tolerance.check_fresh(one, query.end_ms)
        # The offset is taken before the series are selected: a series registered later must have no sample below the
        # stated offset.
        state = head.state()
        if not query.partial and (state.holes or not state.reaches(query.start_ms)):
            # Coverage only rises and takes its holes along, so such a read is refused before anything is gathered.
            early = partition.memory_state(one, state)
            early.check_coverage(query.start_ms)
            tolerance.check_holes((early,), query.start_ms, query.end_ms)
        heads.append(head)
        snapshots.append(one)
        before.append(state)
    selection = memory.selections.select(heads, query, limits, work)
    work.check_going()
    if query.columns:
        after, body = _columns(heads, selection, query, limits, memory.heads_snapshots, work)
    else:
        after, body = _raw(heads, selection, query, limits, work)
    through = [early if early is late else early.through(late) for early, late in zip(before, after, strict=True)]
    states = memory.states.of(partitions, snapshots, through)
    if not query.partial:
        states.check_coverage(query.start_ms)
    if states.holed:
        tolerance.check_holes(states.holed, query.start_ms, query.end_ms)
    assert body.counts is not None, "the answer is whole"
    limits.check_samples(body.counts.samples)
    limits.check_bytes(body.counts.payload_bytes)
    work.hold(body.nbytes)
    memory.selections.remember(heads, query, selection)
    return Answer(body, states.states, states.warnings(query.end_ms))


def _columns(
    heads: list[Head],
    selection: Selection,
    query: SelectSpec,
    limits: SelectLimits,
    heads_snapshots: HeadsSnapshotCache,
    work: ReadWork,
) -> tuple[list[HeadState], AnswerBody]:
    work.hold(_collecting_bytes(heads, selection))
    snapshot = snapshot_many(
        heads,
        selection.refs,
        query.start_ms,
        query.end_ms,
        selection.unsealed,
        heads_snapshots,
        untrimmed_max=JOINED_SAMPLES_MAX if query.untrimmed else 0,
    )
    selection.keep_unsealed(snapshot.unsealed)
    if [held for held in snapshot.held if len(held.below)]:
        return _columns_each(heads, selection, query, limits, work)
    # Read once: another read of the same selection may replace them with the columns of its range.
    known = [part.columns for part in selection.parts]
    missing = [
        number
        for number, (columns, held) in enumerate(zip(known, snapshot.held, strict=True))
        if columns is None or not columns.is_of(held, query.start_ms, query.end_ms)
    ]
    if missing:
        touched = [Touched.by(snapshot.held[number], query.start_ms, query.end_ms) for number in missing]
        refs = ManyRefs.of([selection.parts[number].refs for number in missing])
        before = selection.bytes
        with _limited(limits):
            fresh = columns_many(
                [one.rows for one in touched],
                refs,
                samples_max=limits.samples_max,
                admit=lambda size: work.hold(before + COPIES * size),
            )
        for number, slices, columns in zip(missing, touched, fresh, strict=True):
            kept = KeptColumns.of(snapshot.held[number], slices, columns, copy=len(missing) > 1)
            selection.keep(number, kept)
            known[number] = kept
    overlay = snapshot.overlay
    taken = selection.bytes
    detailed = snapshot.detailed(selection.refs, query.start_ms, query.end_ms, lambda size: work.hold(taken + size))
    if (query.untrimmed and not may_join(known)) or detailed is not None:
        overlay = snapshot.unsealed.within(query.start_ms, query.end_ms)
    if detailed is not None:
        overlay = with_detailed(overlay, detailed)
    body = selection.body_of(known, overlay)
    if body is None:
        body = _body(heads, selection, known, overlay.split(selection.refs.ends))
        body = replace(body, joined=selection.joined(known, overlay))
        # An overlay for this range alone is a copy: no later read would reuse it.
        if overlay is snapshot.unsealed.raw:
            selection.keep_body(known, overlay, body)
    return snapshot.states, body


def _columns_each(
    heads: list[Head], selection: Selection, query: SelectSpec, limits: SelectLimits, work: ReadWork
) -> tuple[list[HeadState], AnswerBody]:
    """Columns head by head, for heads with late samples below coverage: rare. Their slices are decoded and merged by
    the head."""
    states: list[HeadState] = []
    found: list[KeptColumns | None] = []
    overlays: list[RawResult] = []
    taken = selection.bytes
    for head, part in zip(heads, selection.parts, strict=True):
        work.check_going()
        held = head.contents.held
        with _limited(limits):
            result = head.gather_columns(
                part.refs,
                query.start_ms,
                query.end_ms,
                samples_max=limits.samples_max,
                admit=partial(_hold_beside, work, taken),
            )
        touched = Touched.by(held, query.start_ms, query.end_ms)
        found.append(KeptColumns.of(held, touched, result.columns, copy=False))
        overlays.append(result.overlay)
        states.append(head.state())
        taken += COPIES * result.payload_bytes
        work.hold(taken)
    return states, _body(heads, selection, found, overlays)


def _hold_beside(work: ReadWork, before: int, size: int) -> None:
    work.hold(before + size)


def _raw(
    heads: list[Head], selection: Selection, query: SelectSpec, limits: SelectLimits, work: ReadWork
) -> tuple[list[HeadState], AnswerBody]:
    states: list[HeadState] = []
    found: list[RawResult] = []
    samples = payload_bytes = 0
    before = selection.bytes
    # The whole amount at once: reads that each hold a part and wait for the rest would deadlock.
    whole = before + _raw_bytes(heads, selection, query)
    work.hold(whole)

    def admit(size: int) -> None:
        work.hold(max(whole, before + payload_bytes + size))

    for head, part in zip(heads, selection.parts, strict=True):
        work.check_going()
        with _limited(limits, samples):
            raw = head.gather_raw(
                part.refs,
                query.start_ms,
                query.end_ms,
                step_ms=query.step_ms,
                aggregation=query.aggregation,
                last_n=query.last_n,
                partial=query.partial,
                samples_max=limits.samples_max - samples,
                admit=admit,
            )
        samples += raw.samples
        payload_bytes += raw.payload_bytes
        limits.check_bytes(payload_bytes)
        found.append(raw)
        states.append(head.state())
    return states, _body(heads, selection, [None] * len(heads), found)


def _collecting_bytes(heads: list[Head], selection: Selection) -> int:
    """Memory to collect the open samples of a selection; an estimate before the first collection."""
    if selection.unsealed is None:
        parts = zip(heads, selection.parts, strict=True)
        return selection.bytes + COPIES * sum(head.open_bytes_expected(len(part.refs)) for head, part in parts)
    capacity = COLLECT_PER_REF * len(selection.refs.refs) + selection.unsealed.raw.samples
    return COPIES * SAMPLE_BYTES * capacity


def _raw_bytes(heads: list[Head], selection: Selection, query: SelectSpec) -> int:
    """Memory that a RAW answer takes until it is gathered; open samples are estimated."""
    sizes = [
        head.sealed_bytes(part.refs, query.start_ms, query.end_ms) + COPIES * head.open_bytes_expected(len(part.refs))
        for head, part in zip(heads, selection.parts, strict=True)
    ]
    # With steps or last_n a head leaves little: heads are gathered one after another, so the largest one counts.
    return max(sizes, default=0) if query.step_ms or query.last_n else sum(sizes)


def _body(
    heads: list[Head], selection: Selection, columns: Sequence[KeptColumns | None], raws: Sequence[RawResult]
) -> AnswerBody:
    """columns: None for an answer of samples alone, whose samples are `raws`; else they are the overlay."""
    parts: list[PartitionAnswer] = []
    samples = payload = 0
    for head, selected, kept, raw in zip(heads, selection.parts, columns, raws, strict=True):
        found = (raw,) if len(raw.ts_ms) else ()
        samples += len(raw.ts_ms)
        payload += raw.payload_bytes
        if kept is None:
            parts.append(PartitionAnswer(head.partition, selected.series, raw=found))
        else:
            parts.append(PartitionAnswer(head.partition, selected.series, kept.pieces, found))
            samples += kept.samples
            payload += kept.payload_bytes
    counts = AnswerCounts(len(selection.refs.refs), samples, payload)
    return AnswerBody(parts, counts, payload + selection.series_bytes)


@contextmanager
def _limited(limits: SelectLimits, before: int = 0) -> Iterator[None]:
    """Restate a head's samples_limit error with the whole limit: a head knows only the part that is left of it."""
    try:
        yield
    except Overloaded as error:
        if error.reason != "samples_limit":
            raise
        limits.check_samples(before + int(error.metadata["asked"]))
        raise
