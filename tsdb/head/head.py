"""Head: keeps one partition in memory, with every record of the log from since_offset on, of any timestamp.

One writer thread applies records, registers series and maintains; any thread reads. The lock is held while one batch is
applied, and while a read copies open and late samples. Sealed slices never change and are read without the lock.

Expiry forgets series without samples here that were not announced for two windows of broker time.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import RawResult, overlaid_details
from tsdb.codec.records.exemplar_record import Exemplars
from tsdb.codec.records.log_record import DecodedRecords
from tsdb.codec.records.series_record import DecodedAnnouncements
from tsdb.head.details import DetailsView, with_detailed
from tsdb.head.exemplars import HeadExemplars
from tsdb.head.maintain import Maintenance
from tsdb.head.memory import HeadMemory
from tsdb.head.read.gather import (
    COLLECT_PER_REF,
    SAMPLE_BYTES,
    Admit,
    ColumnsResult,
    Runs,
    admit_all,
    check_samples,
    collect,
    compact,
    gather_raw,
    merge_overlay,
)
from tsdb.head.read.gather_columns import gather_columns
from tsdb.head.read.gather_kernels import sealed_counts_kernel
from tsdb.head.read.seen import seen
from tsdb.head.slices.contents import Contents
from tsdb.head.slices.ring import RingBatch
from tsdb.head.slices.rows import OPEN_COUNT, OPEN_LAST_SIZE
from tsdb.head.slices.sealed_slice import SealedSlices, rows_of
from tsdb.head.state import Applied, HeadLimits, HeadSizes, HeadState, Hole, Maintained
from tsdb.head.write.apply import Apply
from tsdb.head.write.pack_cache import PackCache
from tsdb.index.index import SeriesIndex
from tsdb.model.errors import InvalidRequest
from tsdb.model.time_set import SliceLengths, TimeSet
from tsdb.model.window import TIME_MAX_MS

__all__ = ["Applied", "Head", "HeadSizes", "HeadState", "Hole", "Maintained"]

SAMPLES_MAX = 1 << 40  # No real result is near it.
_NO_SLICES = rows_of(())

ANNOUNCED_WINDOWS = 2  # A gateway announces each series it writes once a window; after two no gateway writes it.
ROUNDS_A_WINDOW = 8  # Checks per window. Each check passes over all series.
RELEASE_AFTER = 400  # Rounds of maintenance. They take more than a minute, which is far longer than a read keeps refs.


class Head:
    """The head of one partition. hold_ms: how long a slice stays after its newest record. HeadState describes the
    rest."""

    def __init__(
        self,
        partition: int,
        *,
        slices: SliceLengths,
        time_set: TimeSet,
        hold_ms: int,
        coverage_start_ms: int,
        since_offset: int,
        from_start: bool,
        limits: HeadLimits | None = None,
    ) -> None:
        self.partition = partition
        self.index = SeriesIndex()
        # Public for gathers over several heads (tsdb.head.gather_many), which take its lock.
        self.contents = Contents(
            slices,
            limits or HeadLimits(),
            coverage_start_ms=coverage_start_ms,
            since_offset=since_offset,
            from_start=from_start,
        )
        self.state = self.contents.state
        packs = PackCache(self.contents.limits.pack_cache_refs_max)
        bounds = self.contents.limits
        self.exemplars = HeadExemplars(bounds.exemplars_series_max, bounds.exemplars_bytes_max)
        self.memory = HeadMemory(partition, self.contents, self.index, lambda: packs.bytes, self.exemplars)
        self._maintenance = Maintenance(self.contents, self.index, self.memory, hold_ms)
        self._apply = Apply(
            self.contents, self.index, packs, self.memory, self._maintenance, self.exemplars, time_set, partition
        )
        # New series reuse the refs of forgotten ones, so cached packs would name the wrong series.
        self._expiry = Expiry(self.contents, self.index, self.memory, time_set.window_ms, packs.clear)

    # The writer thread.

    def register(self, records: DecodedAnnouncements, values: bytes, broker_ms: NDArray[np.int64]) -> None:
        """Register announced series. values: the bytes that the label positions of records point into.

        Raises Overloaded (memory_hard) before anything is registered; maintain() may free memory.
        """
        self.memory.check_labels()
        self.index.register(records, values, broker_ms)

    def unknown_ids(self, records: DecodedRecords) -> NDArray[np.uint64]:
        """Distinct series ids in the records that are not known, ascending."""
        return self._apply.unknown_ids(records)

    def apply(self, records: DecodedRecords, offsets: NDArray[np.int64], broker_ms: NDArray[np.int64]) -> Applied:
        """Make records visible. offsets ascend; records already applied are skipped, so a batch may be applied again.

        Samples of unknown series are left out and become a hole, and so do corrupt records. Raises Overloaded
        (memory_hard) before anything is applied; maintain() may free memory.
        """
        return self._apply.apply(records, offsets, broker_ms)

    def maintain(self) -> Maintained:
        """Seal, fold, merge and drop slices, and forget series, as the watermark and the memory limits require."""
        done = self._maintenance.run()
        done.forgotten_series = self._expiry.run()
        found = done.sealed or done.merged or done.folded or done.dropped
        done.more = bool(found) or self._expiry.is_releasing
        return done

    def drop_before(self, start_ms: int, since_offset: int) -> None:
        """Drop samples below start_ms, a multiple of both slice lengths, of records below since_offset.

        For the chunk stage, which drops windows after it has emitted them. It sets hold and the soft memory limit so
        high that nothing else drops.
        """
        with self.contents.lock:
            self._maintenance.drop_before_locked(start_ms, since_offset)

    @property
    def progress(self) -> tuple[tuple[int, int, int, int], tuple[int | None, int | None]]:
        """Memory of maintenance and expiry between rounds; see tsdb.head.head_image."""
        return self._maintenance.progress, self._expiry.progress

    @progress.setter
    def progress(self, progress: tuple[tuple[int, int, int, int], tuple[int | None, int | None]]) -> None:
        self._maintenance.progress, self._expiry.progress = progress

    # Any thread.

    @property
    def applied_offset(self) -> int | None:
        """Offset of the last record visible to reads; None before the first record."""
        return self.contents.applied_offset

    @property
    def next_offset(self) -> int:
        """Offset after the last applied record, or of the first record to apply."""
        return self.contents.next_offset

    def gather_raw(
        self,
        refs: NDArray[np.uint32],
        start_ms: int,
        end_ms: int,
        *,
        step_ms: int = 0,
        aggregation: int = 0,
        last_n: int = 0,
        partial: bool = False,
        samples_max: int = SAMPLES_MAX,
        admit: Admit = admit_all,
    ) -> RawResult:
        """Samples of [start_ms, end_ms) of each series, in the order of refs, time ascending, each timestamp once.

        step_ms, aggregation: see tsdb.head.read.step_kernels. last_n: only the newest n of each series. partial:
        include the order of samples below coverage. Below coverage the result may be incomplete; the caller checks.
        admit: called before memory is taken; its errors pass through. Raises Overloaded (samples_limit), InvalidRequest
        (bad_range, bad_step).
        """
        check_range(start_ms, end_ms)
        if step_ms < 0 or (step_ms and (partial or last_n)):
            raise InvalidRequest(
                f"step_ms {step_ms} must not be negative, and goes without partial and last_n", reason="bad_step"
            )
        refs = np.ascontiguousarray(refs, np.uint32)
        admit(self.open_bytes_expected(len(refs)))
        held, overlay, coverage_ms, details = self._snapshot(refs, start_ms, end_ms, with_orders=partial)
        collect_bytes = overlay.ts_ms.nbytes + overlay.values.nbytes + overlay.orders.nbytes
        detailed = None if details is None else details.of(refs, start_ms, end_ms, admit)
        if detailed is not None:
            collect_bytes += detailed.payload_bytes
            if step_ms:
                check_no_histograms(detailed)
        raw = gather_raw(
            held,
            refs,
            start_ms,
            end_ms,
            overlay.tidy(),
            step_ms=step_ms,
            aggregation=aggregation,
            last_n=last_n,
            orders_below_ms=coverage_ms if partial else None,
            samples_max=samples_max,
            admit=lambda size: admit(collect_bytes + size),
        )
        if detailed is not None and not step_ms:
            raw.details = overlaid_details(raw, detailed)
        return raw

    def open_bytes_expected(self, series: int) -> int:
        """Estimated bytes that a gather needs for the open samples of `series` series, from the average series."""
        contents = self.contents
        rows = contents.open.rows[: contents.open.count]
        per_series = int(rows[:, OPEN_COUNT].sum()) / max(1, int(rows[:, OPEN_LAST_SIZE].max(initial=1)))
        return round(series * max(COLLECT_PER_REF, per_series)) * SAMPLE_BYTES

    def sealed_bytes(self, refs: NDArray[np.uint32], start_ms: int, end_ms: int) -> int:
        """Upper bound of the bytes of the sealed samples of [start_ms, end_ms), decoded."""
        held, capacities = self.contents.held, np.zeros(len(refs), np.int64)
        refs = np.ascontiguousarray(refs, np.uint32)
        sealed_counts_kernel(held.below, refs, start_ms, end_ms, False, capacities)
        sealed_counts_kernel(held.sealed, refs, start_ms, end_ms, False, capacities)
        return int(capacities.sum()) * SAMPLE_BYTES

    def gather_columns(
        self,
        refs: NDArray[np.uint32],
        start_ms: int,
        end_ms: int,
        *,
        samples_max: int = SAMPLES_MAX,
        admit: Admit = admit_all,
    ) -> ColumnsResult:
        """Whole sealed columns of the slices that touch [start_ms, end_ms); the range's other samples as an overlay,
        with all those that have details.

        admit: called before memory for details is taken. Raises Overloaded (samples_limit), InvalidRequest (bad_range).
        """
        check_range(start_ms, end_ms)
        refs = np.ascontiguousarray(refs, np.uint32)
        held, overlay, _, details = self._snapshot(refs, start_ms, end_ms, with_orders=False)
        overlay.tidy()
        if len(held.below):
            overlay = merge_overlay(
                SealedSlices(_NO_SLICES, held.below, held.slices), refs, start_ms, end_ms, overlay, with_orders=False
            )
        columns = gather_columns(held.sealed, refs, start_ms, end_ms, samples_max=samples_max)
        others = compact(overlay)
        detailed = None if details is None else details.of(refs, start_ms, end_ms, admit)
        result = ColumnsResult(columns, others if detailed is None else with_detailed(others, detailed))
        check_samples(result.samples, samples_max)
        return result

    def seen(
        self, refs: NDArray[np.uint32], start_ms: int = -TIME_MAX_MS, end_ms: int = TIME_MAX_MS
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(first, last) sample time in [start_ms, end_ms) of each ref; (INT64_MAX, INT64_MIN) for a ref without
        samples."""
        check_range(start_ms, end_ms)
        refs = np.ascontiguousarray(refs, np.uint32)
        held, overlay, _, _ = self._snapshot(refs, start_ms, end_ms, with_orders=False)
        return seen(held, refs, start_ms, end_ms, overlay)

    def exemplars_of(self, refs: NDArray[np.uint32], start_ms: int, end_ms: int) -> Exemplars:
        """Exemplars of these series with a time in [start_ms, end_ms), by series id and then by arrival."""
        return self.exemplars.of(self.index.series_ids_of(refs), start_ms, end_ms)

    def has_samples(self, refs: NDArray[np.uint32], start_ms: int, end_ms: int) -> NDArray[np.bool_]:
        """Whether each series has a sample in [start_ms, end_ms)."""
        first, last = self.seen(refs, start_ms, end_ms)
        return first <= last

    def watch_since(self, record_offset: int) -> list[RingBatch]:
        """Records applied after record_offset. Raises OutOfCoverage (watch_ring) when the ring lost some of them."""
        with self.contents.lock:
            return self.contents.ring.since(record_offset)

    def sizes(self) -> HeadSizes:
        """Counts and bytes at one moment; takes the lock."""
        contents = self.contents
        with contents.lock:
            return HeadSizes(
                series=self.index.series,
                samples=contents.samples,
                bytes=self.memory.bytes,
                index_bytes=self.index.bytes(),
                late=contents.late.count,
                slices=len(contents.sealed),
                sealed_samples=contents.sealed_samples,
                sealed_bytes=contents.sealed_bytes,
                exemplars=self.exemplars.count,
            )

    def _snapshot(
        self, refs: NDArray[np.uint32], start_ms: int, end_ms: int, *, with_orders: bool
    ) -> tuple[SealedSlices, Runs, int, DetailsView | None]:
        """(sealed slices, a copy of open and late samples, coverage, details), all of one moment."""
        contents = self.contents
        with contents.lock:
            rows = contents.open.rows[: contents.open.count]
            overlay = collect(refs, start_ms, end_ms, rows, contents.late.row, with_orders=with_orders)
            return contents.held, overlay, contents.coverage_start_ms, contents.details.view_locked()


def check_no_histograms(samples: RawResult) -> None:
    """Raises InvalidRequest (native_histograms) for samples with histograms, of which steps would leave sums."""
    if samples.details is not None and samples.details.histograms is not None:
        raise InvalidRequest(
            "the series have native histograms, which have no values of steps: leave step_ms and aggregation out, or"
            " send a query",
            reason="native_histograms",
        )


def check_range(start_ms: int, end_ms: int) -> None:
    if not -TIME_MAX_MS <= start_ms <= end_ms <= TIME_MAX_MS:
        raise InvalidRequest(
            f"range [{start_ms}, {end_ms}) ms is reversed or outside [-2^61, 2^61]", reason="bad_range"
        )


class Expiry:
    """Runs on the head's writer thread. forgotten: called after series were forgotten, to clear caches of refs."""

    def __init__(
        self,
        contents: Contents,
        index: SeriesIndex,
        memory: HeadMemory,
        window_ms: int,
        forgotten: Callable[[], None],
    ) -> None:
        self._contents = contents
        self._index = index
        self._memory = memory
        self._window_ms = window_ms
        self._forgotten = forgotten
        self._checked_at_ms: int | None = None
        self._release_in: int | None = None

    @property
    def progress(self) -> tuple[int | None, int | None]:
        """The values that the next round needs."""
        return self._checked_at_ms, self._release_in

    @progress.setter
    def progress(self, progress: tuple[int | None, int | None]) -> None:
        self._checked_at_ms, self._release_in = progress

    @property
    def is_releasing(self) -> bool:
        """Whether refs of forgotten series wait for their release, which comes after some rounds."""
        return self._release_in is not None

    def run(self) -> int:
        """Forget the series that are due. Returns their number."""
        self._release()
        watermark = self._contents.watermark_ms
        if watermark is None or not self._is_due(watermark):
            return 0
        self._checked_at_ms = watermark
        refs = self._index.expired(
            watermark - ANNOUNCED_WINDOWS * self._window_ms, self._contents.marked(self._index.refs_size)
        )
        if len(refs):
            self._index.forget(refs)
            self._forgotten()
            with self._contents.lock:
                self._contents.details.forget_locked(refs)
            self._release_in = RELEASE_AFTER
        return len(refs)

    def _is_due(self, watermark_ms: int) -> bool:
        last_ms = self._checked_at_ms
        return last_ms is None or watermark_ms - last_ms >= self._window_ms // ROUNDS_A_WINDOW

    def _release(self) -> None:
        """Let new series use the refs of forgotten ones, once no read can hold them."""
        if self._release_in is None:
            return
        self._release_in -= 1
        if self._release_in <= 0:
            self._release_in = None
            self._index.release_forgotten()
            if self._memory.is_tight():
                # Only a compaction frees the labels of released series.
                self._index.compact()
