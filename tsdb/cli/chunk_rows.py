"""Makes rows of the chunks topic for the output of `tsdb chunks`.

Reads the state of the chunk stage from its commits, and lists its repairs, as rows for `tsdb chunks`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from chunker.repair import ResumeProblem, diagnose, repair
from chunker.takeover import known_progress
from tsdb.chunks.engine import GROUP_ID
from tsdb.chunks.progress import Progress
from tsdb.cli.terminal.output import json_value
from tsdb.codec.chunk.chunk import decode_chunk
from tsdb.codec.chunk.key import ChunkKey, HoleKey, ProgressKey, RecordKey, WindowKey, decode_key
from tsdb.codec.chunk.marker import ALWAYS_WHOLE_MS, decode_hole, decode_progress_marker, decode_window_marker
from tsdb.codec.crc32c import crc32c
from tsdb.log.interface import CHUNKS, METRICS, Log, LogRecord, Position
from tsdb.log.records import read_batches
from tsdb.model.clock import SystemClock
from tsdb.model.errors import CorruptData, TsdbError, Unavailable, UnknownVersion
from tsdb.model.time_set import TimeSet
from tsdb.model.times import time_text

FIELDS = ("partition", "offset", "what", "pack", "start_ms", "order", "part", "bytes", "series", "samples", "text")


def record_rows(log: Log, partition: int, limit: int) -> Iterator[dict[str, object]]:
    """The first `limit` records of a partition of the chunks topic."""
    left = limit
    for batch in read_batches(log, CHUNKS, partition):
        for index in range(min(left, len(batch.offsets))):
            yield _row(partition, batch.record(index))
        left -= len(batch.offsets)
        if left <= 0:
            return


def sample_rows(file: Path) -> Iterator[dict[str, object]]:
    """Samples of a chunk in a file. Raises CorruptData, UnknownVersion."""
    fragment = decode_chunk(sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes())
    ids = np.repeat(fragment.series_id, np.diff(fragment.sample_start)).tolist()
    samples = zip(ids, fragment.ts_ms.tolist(), fragment.value.tolist(), fragment.order.tolist(), strict=True)
    for series_id, ts_ms, value, order in samples:
        yield {"series": f"{series_id:016x}", "ts_ms": ts_ms, "value": json_value(value), "order": order}


@dataclass(slots=True)
class Duplicates:
    """Counts of chunk records of one partition. equal: records written again with the same bytes. conflicts: rows with
    other bytes.
    """

    partition: int
    records: int = 0
    keys: int = 0
    equal: int = 0
    conflicts: list[str] = field(default_factory=list)

    @staticmethod
    def of(log: Log, partition: int) -> Duplicates:
        """Read the whole partition and count its records."""
        found, seen = Duplicates(partition), dict[bytes, tuple[int, int]]()
        for batch in read_batches(log, CHUNKS, partition):
            for record in map(batch.record, range(len(batch.offsets))):
                if record.key is not None and record.value is not None:
                    found._add(record.key, record.value, seen)
        found.keys = len(seen)
        return found

    def as_dict(self) -> dict[str, object]:
        return {
            "partition": self.partition,
            "records": self.records,
            "keys": self.keys,
            "equal": self.equal,
            "conflicts": self.conflicts,
        }

    def _add(self, key: bytes, value: bytes, seen: dict[bytes, tuple[int, int]]) -> None:
        decoded = _decoded(key)
        if not isinstance(decoded, ChunkKey):
            return
        self.records += 1
        mark = len(value), crc32c(value)
        before = seen.setdefault(key, mark)
        if before != mark:
            self.conflicts.append(str(decoded))
        elif self.records > len(seen) + self.equal + len(self.conflicts):
            self.equal += 1


def _row(partition: int, record: LogRecord) -> dict[str, object]:
    value = record.value
    row: dict[str, object] = dict.fromkeys(FIELDS)
    row |= {"partition": partition, "offset": record.offset, "bytes": None if value is None else len(value)}
    try:
        found, text = _described(decode_key(record.key or b""), value)
    except (CorruptData, UnknownVersion) as error:
        found, text = {"what": "bad"}, error.message
    return row | found | {"text": text}


def _described(key: RecordKey, value: bytes | None) -> tuple[dict[str, object], str | None]:
    match key:
        case ChunkKey():
            found: dict[str, object] = {
                "what": key.kind.name.lower(),
                "pack": f"{key.pack_id:016x}",
                "start_ms": key.window_start_ms,
                "order": key.order,
                "part": key.part,
            }
            if value is None:
                return found, "may go: folded"
            fragment = decode_chunk(value)
            return found | {"series": fragment.series, "samples": fragment.samples}, None
        case WindowKey():
            window = decode_window_marker(value or b"")
            text = f"{window.packs} packs in {window.chunks} chunks"
            found = {"what": "window", "start_ms": key.window_start_ms, "order": window.decision_offset}
            return found | {"samples": window.samples}, text
        case ProgressKey():
            progress = decode_progress_marker(value or b"")
            text = f"through {time_text(progress.emitted_through_ms)}, series to {progress.series_end_offset}"
            return {"what": "progress", "order": progress.position}, text
        case HoleKey():
            hole = decode_hole(value or b"")
            found = {"what": "hole", "start_ms": hole.start_ms, "order": hole.record_offset}
            return found, f"{hole.reason}, to {time_text(hole.end_ms)}"


def _decoded(key: bytes) -> RecordKey | None:
    try:
        return decode_key(key)
    except CorruptData:
        return None


def stage_rows(log: Log, partitions: Sequence[int], times: TimeSet) -> Iterator[dict[str, object]]:
    """One row for each partition, with None in the fields of progress before the first commit."""
    commits = _commits(log, partitions)
    marks = log.watermarks(METRICS, partitions)
    for partition in partitions:
        progress = _progress(log, partition, commits[partition])
        problem = diagnose(log, partition, commits[partition], times)
        whole_from_ms = progress.whole_from_ms if progress else ALWAYS_WHOLE_MS
        yield {
            "partition": partition,
            "position": progress.position if progress else None,
            "lag": marks[partition].high - progress.position if progress else None,
            "emitted_through_ms": progress.emitted_through_ms if progress else None,
            "whole_from_ms": None if whole_from_ms == ALWAYS_WHOLE_MS else whole_from_ms,
            "trouble": problem.error.reason if problem else None,
        }


def resume_rows(log: Log, times: TimeSet, accepted: Set[str]) -> list[dict[str, object]]:
    """One row for each partition that cannot begin. Partitions whose needs are all accepted are repaired."""
    partitions = range(log.partitions(METRICS))
    commits = _commits(log, partitions)
    problems = [problem for p in partitions if (problem := diagnose(log, p, commits[p], times)) is not None]
    todo = [problem for problem in problems if set(problem.needs) <= accepted]
    done = repair(log, log.group(GROUP_ID), todo, times, SystemClock()) if todo else {}
    return [_stage_row(problem, problem.partition in done) for problem in problems]


def _stage_row(problem: ResumeProblem, done: bool) -> dict[str, object]:
    return {
        "partition": problem.partition,
        "trouble": problem.error.message,
        "needs": ", ".join(problem.needs),
        "hole_start_ms": problem.hole.start_ms if problem.hole else None,
        "hole_end_ms": problem.hole.end_ms if problem.hole else None,
        "done": done,
    }


def _commits(log: Log, partitions: Sequence[int]) -> dict[int, Position | None]:
    with log.group(GROUP_ID) as group:
        found = group.committed([(METRICS, partition) for partition in partitions])
    return {partition: found[METRICS, partition] for partition in partitions}


def _progress(log: Log, partition: int, commit: Position | None) -> Progress | None:
    try:
        return known_progress(log, partition, commit)[1]
    except Unavailable:
        raise
    except TsdbError:
        return None  # `diagnose` gives the reason.
