"""Resume: where the chunk stage of a partition begins, and what to do when the log no longer has the records it needs.

Pure: the caller reads the log and passes the facts in.
"""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.chunks.progress import Progress
from tsdb.codec.chunk.marker import HoleRecord, ProgressMarker
from tsdb.model.errors import LostOffsets
from tsdb.model.time_set import TimeSet
from tsdb.model.window import LONG_AGO_MS, ceil_to, floor_to

TRIMMED_START, GAP_ACCEPTED, TRIMMED_NEAR = "trimmed_start", "gap_accepted", "trimmed_near"


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Facts about one partition of the log.

    low, high: watermarks. first_broker_ms: broker time of the first retained record; None: no record is retained.
    required_offset: lookup of required_ms(progress); None: no record at or after that time.
    """

    low: int
    high: int
    first_broker_ms: int | None
    required_offset: int | None


def progress_of(marker: ProgressMarker) -> Progress:
    """The progress in a progress marker, for a group that lost its commit."""
    return Progress(marker.position, marker.emitted_through_ms, marker.whole_from_ms)


def required_ms(progress: Progress, times: TimeSet) -> int:
    """Broker time from which on records may hold samples that are not emitted yet."""
    return max(progress.emitted_through_ms, progress.whole_from_ms) - times.ahead_ms


def is_whole(start_ms: int, low: int, first_broker_ms: int | None, times: TimeSet) -> bool:
    """Whether the log has every record that can hold a sample of the window that starts at start_ms or of a later one.

    A sample at t that counts has broker time >= t - ahead, and broker times step back by no more than ahead. The rule
    uses times, not offsets: a low watermark may lie in a gap between offsets, so it does not show whether a record was
    trimmed.
    """
    return low == 0 or (first_broker_ms is not None and first_broker_ms + 2 * times.ahead_ms <= start_ms)


def holds_since(broker_ms: int, low: int, first_broker_ms: int | None) -> bool:
    """Whether the log has every record from the first one with this broker time on.

    The first retained record is earlier, so the time lookup is not below the log's start.
    """
    return low == 0 or (first_broker_ms is not None and first_broker_ms < broker_ms)


def trimmed_near(
    start_ms: int, low: int, first_broker_ms: int | None, partition: int, times: TimeSet
) -> HoleRecord | None:
    """The hole of a log that holds_since(start_ms - ahead), but is not known to be whole from start_ms on.

    Broker times may step back: a record that was trimmed just before the first retained one may have a later time, and
    samples for the first `ahead` of the window.
    """
    if first_broker_ms is None or is_whole(start_ms, low, first_broker_ms, times):
        return None
    return HoleRecord(partition, 0, start_ms, first_broker_ms + 2 * times.ahead_ms, TRIMMED_NEAR, low)


def first_progress(
    low: int, first_broker_ms: int, partition: int, times: TimeSet
) -> tuple[Progress, HoleRecord | None]:
    """Progress of a first start, and the hole of a trimmed log. first_broker_ms: the broker time of the first retained
    record.
    """
    emitted_through_ms = floor_to(first_broker_ms - times.grace_ms, times.window_ms)
    if low == 0:
        return Progress(low, emitted_through_ms), None
    whole_from_ms = ceil_to(first_broker_ms + 2 * times.ahead_ms, times.window_ms)
    hole = HoleRecord(partition, 0, LONG_AGO_MS, whole_from_ms, TRIMMED_START, low)
    return Progress(low, emitted_through_ms, whole_from_ms), hole


def seek_offset(progress: Progress, facts: LogFacts) -> int:
    """The first record to read. Call check_gap before."""
    return progress.position if facts.required_offset is None else min(progress.position, facts.required_offset)


def check_gap(progress: Progress, facts: LogFacts, partition: int, times: TimeSet) -> HoleRecord | None:
    """The hole of a log that was trimmed close to the first needed record. None when nothing is lost.

    Raises LostOffsets (chunk_gap), naming the lost interval, when the position, or the lookup of required_ms, is below
    the log's start.

    """
    if not _has_gap(progress, facts, times):
        next_start_ms = max(progress.emitted_through_ms, progress.whole_from_ms)
        return trimmed_near(next_start_ms, facts.low, facts.first_broker_ms, partition, times)
    assert facts.low, "a log that was never trimmed has everything"
    lost = gap_hole(progress, facts, partition, times)
    raise LostOffsets(
        f"the chunk stage of partition {partition} needs offset {progress.position} and records from"
        f" {required_ms(progress, times)} ms on; the log begins at offset {facts.low}: samples in"
        f" [{lost.start_ms}, {lost.end_ms}) ms may be lost; `tsdb chunks resume --accept-gap` records that as a hole",
        reason="chunk_gap",
        partition=partition,
        position=progress.position,
        low=facts.low,
        start_ms=lost.start_ms,
        end_ms=lost.end_ms,
    )


def gap_hole(progress: Progress, facts: LogFacts, partition: int, times: TimeSet) -> HoleRecord:
    """The hole for a gap. Late samples may be as old as accept_past, so the hole starts that much earlier when some of
    them are lost."""
    start_ms = progress.emitted_through_ms
    if progress.position < facts.low:
        start_ms -= times.accept_past_ms
    return HoleRecord(partition, 0, start_ms, _whole_from_ms(facts, progress, times), GAP_ACCEPTED, facts.low)


def progress_after_gap(progress: Progress, facts: LogFacts, times: TimeSet) -> Progress:
    """Progress after a gap was accepted: from the log's beginning, with the first whole window.

    The log must have a record; an empty log gets a tick first.
    """
    assert facts.first_broker_ms is not None, "a gap is accepted where the log has a record again"
    emitted_through_ms = floor_to(facts.first_broker_ms - times.grace_ms, times.window_ms)
    return Progress(
        max(progress.position, facts.low),
        max(progress.emitted_through_ms, emitted_through_ms),
        _whole_from_ms(facts, progress, times),
    )


def _has_gap(progress: Progress, facts: LogFacts, times: TimeSet) -> bool:
    return progress.position < facts.low or not holds_since(
        required_ms(progress, times), facts.low, facts.first_broker_ms
    )


def _whole_from_ms(facts: LogFacts, progress: Progress, times: TimeSet) -> int:
    if facts.first_broker_ms is None:
        return progress.emitted_through_ms + times.window_ms
    return max(progress.whole_from_ms, ceil_to(facts.first_broker_ms + 2 * times.ahead_ms, times.window_ms))
