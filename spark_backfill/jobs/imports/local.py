"""Local import: writes blocks of Prometheus, or rows in memory, into history in one process, without Spark.

The input is read twice. The survey reads and checks every chunk, and counts; before its end nothing is written. Then
steps follow, each with some packs, or a stretch of time of one large pack, so that its rows fit into memory. `meta` has
the number of finished steps, so that a later run goes on after them. Keys and values are those of the job on Spark.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from spark_backfill.jobs.imports.normal_rows import (
    OUT_OF_RANGE,
    SHOWN_CHARS_MAX,
    LabelTexts,
    PlacedSeries,
    Refused,
    time_bounds,
)
from spark_backfill.jobs.imports.prometheus.blocks import (
    NATIVE_HISTOGRAM,
    OpenBlock,
    blocks_at,
    read_meta,
    shown_chunk,
)
from spark_backfill.jobs.imports.prometheus.index import BlockSeries, ChunkRef
from spark_backfill.jobs.imports.prometheus.segments import ChunkSamples
from spark_backfill.places import Places
from spark_backfill.result import ImportResult, RefusedCount
from spark_backfill.writing.appender import TaskAppender
from spark_backfill.writing.chunk_writer import SERIES_PER_RANGE, ChunkWriter, Written, range_bits
from spark_backfill.writing.fragments import SortedRows
from spark_backfill.writing.import_run import ImportRun, StepsDone, begin_run, find_steps
from spark_backfill.writing.loader_wait import wait_until_seen
from tsdb.codec.records.series_record import encode_announcement
from tsdb.log.interface import SERIES
from tsdb.model.clock import Clock, SystemClock
from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.model.import_layout import PROMETHEUS, ImportLayout
from tsdb.model.meta import MetaSettings
from tsdb.model.placement import PlacementRule
from tsdb.model.times import time_text
from tsdb.model.window import EPOCH_MS, floor_to, index_epoch

TOO_RECENT = "too_recent"
STEP_SAMPLES = 2_000_000  # 60 bytes each, and the same again for sorting.
BUCKETS_A_SAMPLE = 4  # Counts of buckets that take as much memory as a sample.
DENSER_MAX = 8  # A stretch of time may be that much denser than its pack.
SERIES_MAX = 2_000_000  # About 1 KiB each.
ENTRIES_MAX = 50_000_000  # Series of all blocks; 16 bytes each.
ROWS_MAX = 16_000_000  # Rows in memory: 20 bytes each, and the same again for sorting.
REFUSED_SHOWN = 20
LARGE = "`tsdb spark import` has no such bound"

Progress = Callable[[str, str], AbstractContextManager[tuple[Callable[[int], None], Callable[[int], None]]]]
"""Opens the progress of a phase, by its name and unit: (advance, expect) add to the number done, and to the total."""


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """job_id: names one input; a second run with it writes the same keys, and goes on after the finished steps. Empty:
    the digest of the files, so that the same command goes on. wait_s: longest wait for the loader after writing; None:
    no wait."""

    job_id: str = ""
    allow_rejects: bool = False
    wait_s: float | None = 600.0
    step_samples: int = STEP_SAMPLES
    series_per_range: int = SERIES_PER_RANGE


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalImportResult(ImportResult):
    """inputs: number of blocks; all files count as one. steps: steps of the import. steps_before: those that earlier
    runs had finished; the counts include them."""

    inputs: int
    steps: int
    steps_before: int


def no_progress(phase: str, unit: str) -> AbstractContextManager[tuple[Callable[[int], None], Callable[[int], None]]]:
    """A Progress that shows nothing."""
    return nullcontext((lambda done: None, lambda more: None))


class ImportSource(Protocol):
    """An opened input. The samples of a chunk ascend in time."""

    def series(self) -> Iterator[BlockSeries]:
        """Every series once, in a fixed order."""

    def chunks(self, number: int) -> Sequence[ChunkRef]:
        """The chunks of a series by its number."""

    def samples(self, number: int, ref: ChunkRef) -> ChunkSamples | None:
        """The samples of a chunk; None for histograms that cannot be stored."""


@dataclass(frozen=True, slots=True)
class ImportInput:
    """fingerprint: digest of the files and of how they are read. sources: open the inputs, in order. samples: about how
    many there are."""

    fingerprint: str
    sources: Sequence[Callable[[], ImportSource]]
    samples: int


def blocks_input(paths: Sequence[str], remark: Callable[[str], None] = lambda text: None) -> ImportInput:
    """Blocks, or folders of blocks. remark: takes texts for a user. Raises InvalidRequest (no_input, no_meta,
    block_twice), CorruptData (corrupt_block), UnknownVersion."""
    blocks = blocks_at(paths)
    _refuse_twice(blocks)
    for text in _overlaps(blocks):
        remark(text)
    files = [file for block in blocks for file in sorted(block.rglob("*")) if file.is_file()]
    print_ = ImportLayout(PROMETHEUS).fingerprint(file_facts(files))
    samples = sum(read_meta(block).samples for block in blocks)
    return ImportInput(print_, [partial(OpenBlock, block) for block in blocks], samples)


class RowsInMemory:
    """Rows as an ImportSource. codes: int32 (n,), index into labels. ts_ms: int64 (n,). values: float64 (n,)."""

    def __init__(
        self,
        labels: Sequence[tuple[tuple[str, str], ...]],
        codes: NDArray[np.int32],
        ts_ms: NDArray[np.int64],
        values: NDArray[np.float64],
    ) -> None:
        order = np.lexsort((ts_ms, codes))
        self._labels = labels
        self._ts_ms, self._values = ts_ms[order], values[order]
        self._starts = np.searchsorted(codes[order], np.arange(len(labels) + 1))

    def series(self) -> Iterator[BlockSeries]:
        """Every series with a sample, as one chunk."""
        for number, labels in enumerate(self._labels):
            if self._starts[number] < self._starts[number + 1]:
                yield BlockSeries(number, labels, self.chunks(number))

    def chunks(self, number: int) -> tuple[ChunkRef, ...]:
        start, end = int(self._starts[number]), int(self._starts[number + 1])
        return (ChunkRef(int(self._ts_ms[start]), int(self._ts_ms[end - 1]), 0, number),)

    def samples(self, number: int, ref: ChunkRef) -> ChunkSamples:
        rows = slice(int(self._starts[number]), int(self._starts[number + 1]))
        return ChunkSamples(self._ts_ms[rows], self._values[rows])


def import_local(
    given: ImportInput,
    places: Places,
    shared: MetaSettings,
    options: LocalOptions,
    *,
    clock: Clock | None = None,
    progress: Progress = no_progress,
    remark: Callable[[str], None] = lambda text: None,
) -> LocalImportResult:
    """Write every sample that is older than the run's end (ImportRun.end_ms); count the others by reason.

    remark: takes texts for a user. Raises InvalidRequest (nothing_to_import, series_id_collision), CorruptData
    (corrupt_block), UnknownVersion, Overloaded (import_limit), ConfigMismatch (other_import), WrongTopic
    (topic_recreated), Unavailable (loader_behind).
    """
    clock = clock or SystemClock()
    with progress("checked", "samples") as (advance, expect):
        expect(given.samples)
        found = _Survey(shared)
        for opens in given.sources:
            found.add(opens, advance)
    for text in found.shown:
        remark(f"refused: {text}")
    if not found.samples:
        counts = ", ".join(f"{count} {reason}" for reason, count in sorted(found.rejected.items())) or "none"
        raise InvalidRequest(f"there is no sample to import; refused: {counts}", reason="nothing_to_import")
    job_id = options.job_id or given.fingerprint[:16]
    partitions = sorted({one.partition for one, count in zip(found.series, found.count, strict=True) if count})
    with places.open_log() as log:
        run = begin_run(log, job_id, partitions, given.fingerprint, clock)
    plan = _Plan(found, options.step_samples, options.series_per_range)
    before = _announced(found, plan, run, places)
    done, written = before, Written(**{name: before.counts[name] for name in asdict(Written())})
    if before.steps:
        remark(f"going on after {before.steps} of {len(plan.steps)} steps of import {job_id}")
    writer = ChunkWriter(places, run.orders, shared.time_set.window_ms, shared.part_bytes_max)
    end_ms = run.end_ms(shared.time_set)
    with progress("written", "samples") as (advance, expect):
        expect(found.samples)
        advance(written.rows)
        for step in plan.steps[before.steps :]:
            rows = plan.rows(step, end_ms)
            if rows is not None:
                written = written.plus(writer.write([rows]))
                advance(len(rows))
            done = replace(done, steps=done.steps + 1, counts={**done.counts, **asdict(written)})
            with places.open_log() as log:
                done.write(log, job_id)
    rejected = {**found.rejected, TOO_RECENT: found.samples - written.rows}
    rejected = {reason: count for reason, count in sorted(rejected.items()) if count}
    if TOO_RECENT in rejected:
        remark(
            f"{rejected[TOO_RECENT]} samples are at or after {time_text(end_ms)}: too recent for an import. Remote"
            " write or `tsdb write` brings those; or import them later"
        )
    if options.wait_s is not None:
        remark(f"all of it is in the log; waiting up to {options.wait_s:g} s for a loader, which standalone has")
        with places.open_log() as log:
            wait_until_seen(log, partitions, job_id, options.wait_s, clock)
    refused = sum(rejected.values())
    return LocalImportResult(
        ok=options.allow_rejects or not refused,
        rows=tuple(RefusedCount(reason, count) for reason, count in rejected.items()),
        job_id=job_id,
        rows_valid=written.rows,
        samples=written.samples,
        chunks=written.chunks,
        bytes=written.bytes,
        duplicates=written.duplicates,
        conflicts=written.conflicts,
        announced=before.counts["announced"],
        rejected=refused,
        rejects=None,
        end_ms=end_ms,
        loaded=options.wait_s is not None,
        inputs=len(given.sources),
        steps=len(plan.steps),
        steps_before=before.steps,
    )


def _refuse_twice(blocks: Sequence[Path]) -> None:
    twice = [str(block) for block, count in Counter(block.resolve() for block in blocks).items() if count > 1]
    if twice:
        raise InvalidRequest(f"{twice[0]} is given twice", reason="block_twice")


def _overlaps(blocks: Sequence[Path]) -> Iterator[str]:
    """A text for each block that begins before the end of an earlier one."""
    spans = sorted((meta.min_ms, meta.max_ms, block) for block, meta in ((block, read_meta(block)) for block in blocks))
    last_ms, last = None, Path()
    for min_ms, max_ms, block in spans:
        if last_ms is not None and min_ms < last_ms:
            yield (
                f"blocks {last.name} and {block.name} overlap from {time_text(min_ms)} to"
                f" {time_text(min(max_ms, last_ms))}: equal samples count once (duplicates); of unequal ones the value"
                " with the highest bits counts (conflicts)"
            )
        if last_ms is None or max_ms > last_ms:
            last_ms, last = max_ms, block


def file_facts(files: Iterable[Path]) -> list[tuple[str, int, str]]:
    """(path, bytes, time of change) of each file."""
    return [(str(file.resolve()), (stat := file.stat()).st_size, str(stat.st_mtime_ns)) for file in files]


@dataclass(slots=True)
class _Entries:
    """The series of an input that have samples. number: their numbers. code: their place in the list of all series."""

    opens: Callable[[], ImportSource]
    number: array[int] = field(default_factory=lambda: array("q"))
    code: array[int] = field(default_factory=lambda: array("i"))


class _Survey:
    """Reads inputs, one after the other. samples: valid ones. count: number of samples of each series. size: their
    number as the plan counts them, a histogram by its buckets."""

    def __init__(self, shared: MetaSettings) -> None:
        self._texts = LabelTexts(PlacementRule(shared.placement_labels), shared.partitions)
        self.window_ms = shared.time_set.window_ms
        self.low_ms, self.high_ms = time_bounds(self.window_ms)
        self._codes: dict[tuple[tuple[str, str], ...], int | Refused] = {}
        self._ids: dict[int, int] = {}
        self.series: list[PlacedSeries] = []
        self.count = array("q")
        self.size = array("q")
        self.first_ms, self.last_ms = array("q"), array("q")
        self.inputs: list[_Entries] = []
        self.epochs: set[tuple[int, int]] = set()
        self.rejected: Counter[str] = Counter()
        self.shown: list[str] = []
        self.samples = 0

    def add(self, opens: Callable[[], ImportSource], advance: Callable[[int], None]) -> None:
        """Read an input whole. Raises CorruptData, UnknownVersion, InvalidRequest, Overloaded."""
        source, entries = opens(), _Entries(opens)
        self.inputs.append(entries)
        for one in source.series():
            code, samples, size = self._code(one.labels), 0, 0
            for ref in one.chunks:
                found = source.samples(one.number, ref)
                if found is None:
                    self._refuse(NATIVE_HISTOGRAM, 1, one, shown_chunk(ref))
                    continue
                advance(len(found.ts_ms))
                if isinstance(code, Refused):
                    self._refuse(code.reason, len(found.ts_ms), one, shown_chunk(ref))
                else:
                    samples += self._valid(code, found.ts_ms, one)
                    size += size_of(found)
            if samples and not isinstance(code, Refused):
                entries.number.append(one.number)
                entries.code.append(code)
                self.count[code] += samples
                self.size[code] += size
                self.samples += samples
        if sum(len(each.number) for each in self.inputs) > ENTRIES_MAX:
            raise Overloaded(f"the blocks have over {ENTRIES_MAX} entries of series; {LARGE}", reason="import_limit")

    def _valid(self, code: int, ts_ms: NDArray[np.int64], one: BlockSeries) -> int:
        """The number of valid times of a chunk, after taking their epochs."""
        first, last = np.searchsorted(ts_ms, (self.low_ms, self.high_ms))
        if last - first < len(ts_ms):
            self._refuse(OUT_OF_RANGE, len(ts_ms) - int(last - first), one, f"{ts_ms[0]} to {ts_ms[-1]} ms")
        if first == last:
            return 0
        low_ms, high_ms, id_ = int(ts_ms[first]), int(ts_ms[last - 1]), self.series[code].series_id
        self.first_ms[code] = min(self.first_ms[code], low_ms)
        self.last_ms[code] = max(self.last_ms[code], high_ms)
        epochs = [index_epoch(id_, low_ms), index_epoch(id_, high_ms)]
        if epochs[1] - epochs[0] > 1:
            epochs = np.unique((ts_ms[first:last] + id_ % EPOCH_MS) // EPOCH_MS).tolist()
        self.epochs.update((code, epoch) for epoch in epochs)
        return int(last - first)

    def _code(self, labels: tuple[tuple[str, str], ...]) -> int | Refused:
        code = self._codes.get(labels)
        if code is None:
            placed = self._texts.placed(dict(labels))
            code = self._codes[labels] = placed if isinstance(placed, Refused) else self._new(placed)
        return code

    def _new(self, placed: PlacedSeries) -> int:
        known = self._ids.get(placed.series_id)
        if known is not None:
            if self.series[known].canonical != placed.canonical:
                raise InvalidRequest(
                    f"two label sets have one series id: {placed.series_id:016x}", reason="series_id_collision"
                )
            return known
        if len(self.series) == SERIES_MAX:
            raise Overloaded(f"there are over {SERIES_MAX} series; {LARGE}", reason="import_limit")
        self._ids[placed.series_id] = len(self.series)
        self.series.append(placed)
        self.count.append(0)
        self.size.append(0)
        self.first_ms.append(self.high_ms)
        self.last_ms.append(self.low_ms)
        return len(self.series) - 1

    def _refuse(self, reason: str, count: int, one: BlockSeries, shown: str) -> None:
        if not self.rejected[reason] or len(self.shown) < REFUSED_SHOWN:
            self.shown.append(f"{reason}: {json.dumps(dict(one.labels))} {shown}"[:SHOWN_CHARS_MAX])
        self.rejected[reason] += count


@dataclass(frozen=True, slots=True)
class _Step:
    """Samples of the groups [first, last) with times in [start_ms, end_ms), which are whole windows."""

    first: int
    last: int
    start_ms: int
    end_ms: int


class _Plan:
    """The steps of an import, and their rows. A group has the series of a pack, or of a range of a large pack."""

    def __init__(self, found: _Survey, step_samples: int, series_per_range: int) -> None:
        series = found.series
        self._partition = np.array([one.partition for one in series], np.int32)
        self._pack = np.array([one.pack_id for one in series], np.uint64)
        self._id = np.array([one.series_id for one in series], np.uint64)
        self._window_ms = found.window_ms
        self._rows_max = DENSER_MAX * step_samples
        _, pack_of, sizes = np.unique(self._pack, return_inverse=True, return_counts=True)
        bits = np.array([range_bits(size, series_per_range) for size in sizes.tolist()], np.uint64)[pack_of]
        # A shift by 64 is not defined.
        shift = np.where(bits > 0, np.uint64(64) - bits, np.uint64(63))
        self._range = np.where(bits > 0, self._id >> shift, np.uint64(0)).astype(np.int32)
        order = np.lexsort((self._range, self._pack.view(np.int64), self._partition))
        changed = (self._pack[order][1:] != self._pack[order][:-1]) | (
            self._range[order][1:] != self._range[order][:-1]
        )
        group = np.empty(len(series), np.int64)
        group[order] = np.concatenate(([0], np.cumsum(changed)))
        self._inputs = [_sorted_entries(entries, group) for entries in found.inputs]
        size, first_ms, last_ms = (
            np.frombuffer(each, np.int64) for each in (found.size, found.first_ms, found.last_ms)
        )
        self.steps = tuple(self._cut(group, size, first_ms, last_ms, step_samples))
        shown = [step_samples, series_per_range, [asdict(step) for step in self.steps]]
        self.digest = hashlib.sha256(json.dumps(shown).encode()).hexdigest()

    def rows(self, step: _Step, end_ms: int) -> SortedRows | None:
        """The rows of a step before end_ms, in the order that the chunk writer needs; None without one."""
        codes, sizes = array("i"), array("q")
        times: list[NDArray[np.int64]] = []
        values: list[NDArray[np.float64]] = []
        details: list[tuple[int, SampleDetails | None]] = []
        start_ms, end_ms, total = step.start_ms, min(step.end_ms, end_ms), 0
        for opens, groups, numbers, code_of in self._inputs:
            first, last = np.searchsorted(groups, (step.first, step.last))
            source = opens() if first < last else None
            for number, code in zip(numbers[first:last].tolist(), code_of[first:last].tolist(), strict=True):
                assert source is not None, "it has entries"
                for ref in source.chunks(number):
                    if ref.max_ms < start_ms or ref.min_ms >= end_ms:
                        continue
                    samples = source.samples(number, ref)
                    if samples is None:
                        continue
                    low, high = np.searchsorted(samples.ts_ms, (start_ms, end_ms))
                    codes.append(code)
                    sizes.append(int(high - low))
                    times.append(samples.ts_ms[low:high])
                    values.append(samples.value[low:high])
                    part = None if samples.details is None else samples.details.part(int(low), int(high))
                    details.append((int(high - low), part))
                    total += size_of(ChunkSamples(times[-1], values[-1], part))
                if total > self._rows_max:
                    raise Overloaded(
                        f"over {self._rows_max} samples of one job and instance are in a step of"
                        f" {time_text(step.start_ms)} to {time_text(step.end_ms)}; {LARGE}",
                        reason="import_limit",
                    )
        if not total:
            return None
        series = np.repeat(np.frombuffer(codes, np.int32), np.frombuffer(sizes, np.int64))
        return self._sorted(series, np.concatenate(times), np.concatenate(values), joined_details(details))

    def _sorted(
        self,
        code: NDArray[np.int32],
        ts_ms: NDArray[np.int64],
        value: NDArray[np.float64],
        details: SampleDetails | None,
    ) -> SortedRows:
        columns = self._partition[code], self._pack[code], ts_ms - ts_ms % self._window_ms, self._range[code]
        partition, pack, window, range_ = columns
        ids = self._id[code]
        # Ids are sorted as int64, as Spark sorts them: the order decides where a large fragment is cut.
        order = np.lexsort((ts_ms, ids.view(np.int64), range_, window, pack.view(np.int64), partition))
        keys = partition[order], pack[order], window[order], range_[order], ids[order]
        details = None if details is None else details.take(order)
        return SortedRows(*keys, ts_ms[order], value[order], details)

    def _cut(
        self,
        group: NDArray[np.int64],
        size_of_series: NDArray[np.int64],
        first_ms: NDArray[np.int64],
        last_ms: NDArray[np.int64],
        step_samples: int,
    ) -> Iterator[_Step]:
        """Neighbouring groups up to step_samples; a larger group alone, in equal stretches of time."""
        groups = int(group.max()) + 1
        sizes = np.zeros(groups, np.int64)
        np.add.at(sizes, group, size_of_series)
        low_ms, high_ms = floor_to(int(first_ms.min()), self._window_ms), int(last_ms.max()) + 1
        begin, waiting = 0, 0
        for at, size in enumerate(sizes.tolist()):
            if waiting and waiting + size > step_samples:
                yield _Step(begin, at, low_ms, high_ms)
                begin, waiting = at, 0
            waiting += size
            if size > step_samples:
                mine = group == at
                yield from self._stretches(at, size, int(first_ms[mine].min()), int(last_ms[mine].max()), step_samples)
                begin, waiting = at + 1, 0
        if waiting:
            yield _Step(begin, groups, low_ms, high_ms)

    def _stretches(self, group: int, size: int, first_ms: int, last_ms: int, step_samples: int) -> Iterator[_Step]:
        start_ms = floor_to(first_ms, self._window_ms)
        windows = (last_ms - start_ms) // self._window_ms + 1
        length_ms = max(windows * step_samples // size, 1) * self._window_ms
        for at_ms in range(start_ms, last_ms + 1, length_ms):
            yield _Step(group, group + 1, at_ms, at_ms + length_ms)


def size_of(samples: ChunkSamples) -> int:
    """The number of samples, as steps count them: a histogram has the memory of some samples."""
    histograms = None if samples.details is None else samples.details.histograms
    return len(samples.ts_ms) + (0 if histograms is None else len(histograms.buckets) // BUCKETS_A_SAMPLE)


def _sorted_entries(
    entries: _Entries, group: NDArray[np.int64]
) -> tuple[Callable[[], ImportSource], NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """(opener, group, number, code) of the series of an input, sorted by group."""
    code, number = np.frombuffer(entries.code, np.int32), np.frombuffer(entries.number, np.int64)
    order = np.argsort(group[code], kind="stable")
    return entries.opens, group[code][order], number[order], code[order]


def _announced(found: _Survey, plan: _Plan, run: ImportRun, places: Places) -> StepsDone:
    """The finished steps of earlier runs. Without one, announce all series: a reader of a chunk finds its series."""
    with places.open_log() as log:
        before = find_steps(log, run.job_id, plan.digest)
        if before is not None:
            return before
        appender = TaskAppender(log, SERIES)
        for code, epoch in sorted(found.epochs):
            one = found.series[code]
            key, value = encode_announcement(one.series_id, epoch, one.pack_id, one.canonical)
            appender.send(one.partition, key, value)
        appender.finish()
        counts: Mapping[str, int] = {**asdict(Written()), "announced": appender.sent_records}
        done = StepsDone(plan.digest, 0, counts)
        done.write(log, run.job_id)
        return done
