"""Chunkers in this process, time that runs faster, and the output of an uninterrupted chunk stage for a recorded
log."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from chunker.chunker import Chunker, ChunkerOptions
from chunker.partition import StageOptions
from support.oracles.chunk_twin import Written
from support.servers.logs import WITHIN_S, wait_until
from tsdb.chunks.engine import GROUP_ID
from tsdb.chunks.late_scan import Windows
from tsdb.chunks.progress import Progress, decode_commit
from tsdb.chunks.resume import first_progress
from tsdb.chunks.stage import ChunkStage
from tsdb.codec.chunk.key import ChunkKey, Kind, ProgressKey, RecordKey, WindowKey, decode_key, encode_key
from tsdb.codec.records.log_record import decode_records
from tsdb.codec.records.series_record import decode_announcements
from tsdb.head.state import HeadLimits
from tsdb.log.interface import CHUNKS, METRICS, SERIES, EndOfLog, Log, RecordBatch
from tsdb.model.clock import Clock
from tsdb.model.time_set import DEMO, SliceLengths, TimeSet, slice_lengths

NO_END_MS = 1 << 60


class FastClock:
    """Wall time starts at base_ms at `began` and runs `speed` times faster; monotonic time is the machine's. So several
    processes can have the same clock."""

    def __init__(self, base_ms: int, speed: float, *, began: float | None = None) -> None:
        self.base_ms = base_ms
        self.speed = speed
        self.began = time.monotonic() if began is None else began

    def now_ms(self) -> int:
        return self.base_ms + int((time.monotonic() - self.began) * 1000 * self.speed)

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def chunker_options(times: TimeSet = DEMO, slices: SliceLengths | None = None, **stage: int) -> ChunkerOptions:
    """Default chunker options of the time set."""
    options = StageOptions(times, slices or slice_lengths(times.name), HeadLimits(), **stage)
    return ChunkerOptions(options, inflight_bytes_max=8 << 20, lag_enter_s=5.0, lag_leave_s=20.0)


@contextmanager
def running(log: Log, options: ChunkerOptions, clock: Clock, *, graceful: bool = True) -> Iterator[Chunker]:
    """A running chunker; at the end of the block it is drained, or aborted at any point of its work."""
    chunker = Chunker(log, options, clock)
    chunker.start()
    try:
        yield chunker
    finally:
        (chunker.close if graceful else chunker.abort)()
        assert chunker.join(WITHIN_S), "the chunker does not end"
        if (failure := chunker.failure()) is not None:
            raise failure


def wait_emitted(chunker: Chunker, partitions: Sequence[int], through_ms: int, within_s: float = WITHIN_S) -> None:
    """Wait until every partition has emitted and committed all windows that end by this time."""

    def done() -> bool:
        assert chunker.failure() is None, chunker.failure()
        found = {status.partition: status.emitted_through_ms for status in chunker.statuses()}
        return all((found.get(p) or 0) >= through_ms for p in partitions)

    wait_until(done, within_s)


def read_all(log: Log, topic: str, partition: int) -> list[RecordBatch]:
    """Every record of a partition, in batches. Records that are appended meanwhile may be among them."""
    marks = log.watermarks(topic, [partition])[partition]
    found: list[RecordBatch] = []
    with log.reader({(topic, partition): marks.low}) as reader:
        while not found or found[-1].offsets[-1] < marks.high - 1:
            for event in reader.poll(0.2):
                if isinstance(event, EndOfLog):
                    return found
                found.append(event)
    return found


def written_to(log: Log, partition: int) -> Written:
    """The records of `chunks` without progress markers and equal duplicates. Asserts that each key has one value."""
    values: dict[bytes, bytes] = {}
    for batch in read_all(log, CHUNKS, partition):
        for record in map(batch.record, range(len(batch.offsets))):
            assert record.key is not None
            assert record.value is not None
            if record.key == encode_key(ProgressKey()):
                continue
            before = values.setdefault(record.key, record.value)
            assert before == record.value, f"{decode_key(record.key)} was written with other bytes"
    return set(values.items())


def uninterrupted(log: Log, partition: int, times: TimeSet, *, slices: SliceLengths | None = None) -> Written:
    """The output of one stage that reads the whole recorded log without a stop."""
    batches = read_all(log, METRICS, partition)
    progress, hole = first_progress(0, int(batches[0].broker_ms[0]), partition, times)
    assert hole is None
    stage = new_stage(log, partition, progress, times, slices)
    written: Written = set()
    for batch in batches:
        records = decode_records(batch.values, batch.value_starts)
        stage.unknown_ids(records)
        stage.apply(records, batch.offsets, batch.broker_ms)
        stage.maintain()
        while (emission := stage.due(NO_END_MS)) is not None:
            written |= {(record.key, record.value) for record in (*emission.records, *emission.markers)}
            stage.finish(emission)
    return written


def assert_uninterrupted(log: Log, partition: int, times: TimeSet, slices: SliceLengths | None = None) -> Written:
    """Assert that `chunks` equals the output of an uninterrupted stage: all of it up to the commit, and nothing else.

    The log may have records after the last commit that the last chunker had no time for. A chunk stage may be running:
    the commit is read first, and the log last.
    """
    progress = committed(log, partition)
    written, want = written_to(log, partition), uninterrupted(log, partition, times, slices=slices)
    strange = [decode_key(key) for key, _ in written - want]
    assert not strange, f"nobody but a stopped stage writes {strange[:3]}, {len(strange)} in all"
    missing = [decode_key(key) for key, _ in want - written if is_emitted(decode_key(key), progress, times)]
    assert not missing, f"{missing[:3]} are missing, {len(missing)} in all; committed is {progress}"
    return written


def committed(log: Log, partition: int) -> Progress:
    """The committed progress of the chunk stage."""
    with log.group(GROUP_ID) as group:
        position = group.committed([(METRICS, partition)])[METRICS, partition]
    assert position is not None, "nothing is committed"
    return decode_commit(position.next_offset, position.metadata, log.topic_id(METRICS))


def is_emitted(key: RecordKey, progress: Progress, times: TimeSet) -> bool:
    """Whether the committed progress covers the record with this key."""
    match key:
        case ChunkKey(kind=Kind.LATE):
            return key.order < progress.position
        case ChunkKey() | WindowKey():
            return key.window_start_ms + times.window_ms <= progress.emitted_through_ms
    return True


def new_stage(
    log: Log, partition: int, progress: Progress, times: TimeSet, slices: SliceLengths | None = None
) -> ChunkStage:
    """A stage with all announced series registered."""
    stage = ChunkStage(partition, progress, progress.position, times=times, slices=slices or slice_lengths(times.name))
    for batch in read_all(log, SERIES, partition):
        decoded = decode_announcements(batch.keys, batch.key_starts, batch.values, batch.value_starts)
        stage.register(decoded, batch.values, batch.broker_ms)
    return stage


def windows_in(written: Written) -> list[int]:
    """Starts of the windows that have a marker, ascending."""
    keys = (decode_key(key) for key, _ in written)
    return sorted(key.window_start_ms for key in keys if isinstance(key, WindowKey))


def inside(written: Written, windows: Windows) -> Written:
    """Chunks and markers of some windows."""
    keys = ((key, value, decode_key(key)) for key, value in written)
    return {
        (key, value)
        for key, value, decoded in keys
        if isinstance(decoded, ChunkKey | WindowKey) and windows.start_ms <= decoded.window_start_ms < windows.end_ms
    }
