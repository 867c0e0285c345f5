"""LogSeam: the time at which a read of history ends and the log takes over, from `loaded` and the ends of the log.

History is complete for samples below `position` (X) whose time is before `emitted_through_ms` (docs/architecture/
history.md). A read states its range; beyond what is loaded it needs the log, or it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_backfill.source.log import check_retention, first_offsets, times_of
from spark_backfill.source.options import TimeSpan
from tsdb.history.interface import ChunkStore, Loaded
from tsdb.log.interface import METRICS, Log
from tsdb.log.records import last_records
from tsdb.model.errors import OutOfCoverage, Unavailable
from tsdb.model.time_set import TimeSet
from tsdb.model.window import ceil_to

IMPORT_MARGIN_MS = 24 * 3600 * 1000  # The samples of an import end before its tick by this time and the least hold.


@dataclass(frozen=True, slots=True)
class LogSeam:
    """Samples at or after from_ms come from the log alone. from_ms is the start of a window.

    late, recent: by partition, the offsets [first, end) that can have samples before from_ms that history lacks, and
    all samples from from_ms on. topic_id: the topic id of the log. ahead_ms: a sample's longest distance ahead of its
    record.
    """

    topic_id: str
    from_ms: int
    ahead_ms: int
    window_ms: int
    late: Mapping[int, tuple[int, int]]
    recent: Mapping[int, tuple[int, int]]


def loaded_through(loaded: Mapping[int, Loaded], partitions: int) -> int | None:
    """End of the sample times that history has of every partition, ms; None if nothing is loaded of one."""
    if any(partition not in loaded for partition in range(partitions)):
        return None
    return min(loaded[partition].emitted_through_ms for partition in range(partitions))


def newest_loaded(store: ChunkStore) -> Mapping[int, Loaded]:
    """`loaded` of the log that history was loaded from last: a read without a log does not know the topic's id."""
    found = [store.loaded(topic_id) for topic_id in store.loaded_topics()]
    return max(found, key=lambda each: max((one.emitted_through_ms for one in each.values()), default=0), default={})


def check_loaded(store: ChunkStore, log: Log | None, partitions: int, span: TimeSpan, next_step: str) -> int:
    """End of what is loaded, ms. Raises Unavailable (history_behind) when the span ends later.

    log: without it the numbers are `loaded` of the newest log that history knows. next_step: the recommendation in the
    error's text.
    """
    loaded = newest_loaded(store) if log is None else store.loaded(log.topic_id(METRICS))
    through_ms = loaded_through(loaded, partitions)
    if through_ms is None or span.end_ms is None or span.end_ms > through_ms:
        missing = next((number for number in range(partitions) if number not in loaded), None)
        whole = (
            f"it is whole before {through_ms} ms" if missing is None else f"nothing is loaded of partition {missing}"
        )
        asked = "without an end" if span.end_ms is None else f"up to {span.end_ms} ms"
        raise Unavailable(
            f"history does not hold all of the range, which is requested {asked}: {whole}; {next_step}",
            reason="history_behind",
        )
    return through_ms


def seam_of(store: ChunkStore, log: Log, span: TimeSpan, *, allow_holes: bool) -> LogSeam:
    """The seam now. Read it before any chunk, so that what is loaded later is not missed.

    Raises OutOfCoverage (before_retention) when the log no longer has what history lacks, unless holes are allowed.
    """
    times = times_of(log)
    partitions = range(log.partitions(METRICS))
    topic_id = log.topic_id(METRICS)
    loaded = store.loaded(topic_id)
    marks = log.watermarks(METRICS, partitions)
    from_ms = _from_ms(log, loaded, len(partitions), times)
    late: dict[int, tuple[int, int]] = {}
    for partition in partitions:
        first = _late_first(log, partition, loaded.get(partition), from_ms, times)
        low, high = marks[partition].low, marks[partition].high
        if first < low and not allow_holes:
            raise OutOfCoverage(
                f"partition {partition}: history holds what is below record {first}, and the log begins at {low}: the"
                " records between are in neither; read what is left with the option allow_holes=true",
                reason="before_retention",
            )
        late[partition] = (min(max(first, low), high), high)
    if not allow_holes and (span.end_ms is None or span.end_ms > from_ms):
        check_retention(log, marks, from_ms, times)
    starts = first_offsets(log, marks, from_ms, times, allow_holes=True)
    recent = {number: (starts[number], marks[number].high) for number in partitions}
    return LogSeam(topic_id, from_ms, times.ahead_ms, times.window_ms, late, recent)


def _from_ms(log: Log, loaded: Mapping[int, Loaded], partitions: int, times: TimeSet) -> int:
    """The end of the emitted times of all partitions, or of the times that imports may have, whichever is later."""
    through_ms = loaded_through(loaded, partitions) or 0
    newest = [record.broker_ms for record in last_records(log, METRICS, range(partitions)).values() if record]
    imports_ms = max(newest, default=0) - times.least_hold_ms - IMPORT_MARGIN_MS
    return max(through_ms, ceil_to(max(imports_ms, 0), times.window_ms))


def _late_first(log: Log, partition: int, loaded: Loaded | None, from_ms: int, times: TimeSet) -> int:
    """First offset with samples before from_ms that history may lack."""
    if loaded is None:
        return 0
    if loaded.emitted_through_ms >= from_ms:
        return loaded.position
    since_ms = max(loaded.emitted_through_ms - times.ahead_ms, 0)
    found = log.offsets_for_times(METRICS, {partition: since_ms})[partition]
    return loaded.position if found is None else min(loaded.position, found)
