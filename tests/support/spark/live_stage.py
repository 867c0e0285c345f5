"""A log into which samples flow, and the check of its chunk stage, in whichever processes the stage runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from support.oracles.chunk_twin import Written
from support.servers.chunkers import assert_uninterrupted, read_all, windows_in, written_to
from support.servers.logs import wait_until
from tsdb.chunks.engine import GROUP_ID
from tsdb.chunks.late_scan import Windows
from tsdb.chunks.progress import Progress, decode_commit
from tsdb.codec.chunk.key import ChunkKey, HoleKey, ProgressKey, decode_key, encode_key
from tsdb.codec.chunk.marker import ALWAYS_WHOLE_MS, decode_progress_marker
from tsdb.log.interface import CHUNKS, METRICS, Log
from tsdb.model.errors import Unavailable
from tsdb.model.time_set import DEMO

MOVES_WITHIN_S = 300.0  # A session starts within a minute on a busy machine.
WINDOW_WITHIN_S = 180.0


@dataclass(frozen=True, slots=True)
class StageCheck:
    """Counts of the records in the log, and of the chunks, windows and bytes that equal those of an uninterrupted
    stage.
    """

    records: int
    chunks: int
    windows: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.records} records, {self.chunks} chunks of {self.windows} windows, {self.bytes} bytes equal"


class LiveStage:
    """log: a writer elsewhere appends to it, so its broker time advances."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._numbers = range(log.partitions(METRICS))
        self._group = log.group(GROUP_ID)
        self._in_order_from = dict.fromkeys(self._numbers, 0)

    def commits(self) -> list[Progress | None]:
        """Committed progress of each partition. Raises Unavailable."""
        found = self._group.committed([(METRICS, number) for number in self._numbers])
        topic_id = self._log.topic_id(METRICS)
        return [
            decode_commit(one.next_offset, one.metadata, topic_id) if (one := found[METRICS, number]) else None
            for number in self._numbers
        ]

    def wait_moved(self, within_s: float = MOVES_WITHIN_S) -> float:
        """Wait until all partitions have committed a position past the log's end of now. Returns the seconds."""
        began = time.monotonic()
        highs: list[int] = []

        def moved() -> bool:
            with contextlib.suppress(Unavailable):
                if not highs:
                    highs.extend(self._highs())
                return all(one is not None and one.position > highs[n] for n, one in enumerate(self.commits()))
            return False

        wait_until(moved, within_s, describe=lambda: (highs, self.commits()))
        return time.monotonic() - began

    def wait_append(self, within_s: float = MOVES_WITHIN_S) -> None:
        """Wait until a record is appended to `chunks`: a batch is under way then."""
        before = self._highs(CHUNKS)
        wait_until(lambda: self._highs(CHUNKS) != before, within_s)

    def wait_window(self, within_s: float = WINDOW_WITHIN_S) -> float:
        """Wait until a window that is open now is emitted and committed in all partitions. Returns the seconds."""
        began, now_ms = time.monotonic(), time.time_ns() // 1_000_000

        def emitted() -> bool:
            with contextlib.suppress(Unavailable):
                return all(one is not None and one.emitted_through_ms > now_ms for one in self.commits())
            return False

        wait_until(emitted, within_s, describe=lambda: (now_ms, self.commits()))
        return time.monotonic() - began

    def check(self) -> StageCheck:
        """Assert that `chunks` has all that follows from the log up to the commits, and nothing else; that no key has
        two values; that no window and no sample was skipped; and that commits agree with the markers."""
        records = sum(self._highs())
        chunks = windows = size = 0
        for number in self._numbers:
            self._assert_commit_in_markers(number)
            written = assert_uninterrupted(self._log, number, DEMO)
            keys = [decode_key(key) for key, _ in written]
            assert not [key for key in keys if isinstance(key, HoleKey)]
            starts = windows_in(written)
            assert all(after - before == DEMO.window_ms for before, after in pairwise(starts)), "a window was skipped"
            chunks += sum(isinstance(key, ChunkKey) for key in keys)
            windows += len(starts)
            size += sum(len(key) + len(value) for key, value in written)
        return StageCheck(records, chunks, windows, size)

    def overlapped(self) -> None:
        """Accept the order of the markers so far: two engines worked at once, and wrote the same chunks at other times.

        A reader takes the highest marker. Commits are in order: an engine commits only the partitions that it holds.
        """
        self._in_order_from = {number: len(self._markers(number)) for number in self._numbers}

    def chunk_records(self) -> Written:
        """Keys and values of all chunks, without markers."""
        written = set().union(*(written_to(self._log, number) for number in self._numbers))
        return {(key, value) for key, value in written if isinstance(decode_key(key), ChunkKey)}

    def emitted_windows(self) -> Windows:
        """The windows that every partition has emitted."""
        starts = [windows_in(written_to(self._log, number)) for number in self._numbers]
        return Windows(max(one[0] for one in starts), min(one[-1] for one in starts) + DEMO.window_ms)

    def _highs(self, topic: str = METRICS) -> list[int]:
        marks = self._log.watermarks(topic, list(self._numbers))
        return [marks[number].high for number in self._numbers]

    def _assert_commit_in_markers(self, number: int) -> None:
        commit = self.commits()[number]
        markers = self._markers(number)
        assert commit in markers, f"partition {number}: {commit} is committed; the last marker is {markers[-1]}"
        assert commit is not None
        assert commit.whole_from_ms == ALWAYS_WHOLE_MS
        for before, after in pairwise(markers[self._in_order_from[number] :]):
            assert before.position <= after.position, f"partition {number}: {after} follows {before}"
            assert before.emitted_through_ms <= after.emitted_through_ms, f"partition {number}: {after} after {before}"

    def _markers(self, number: int) -> Sequence[Progress]:
        """All progress markers of a partition, the oldest first."""
        found = []
        for batch in read_all(self._log, CHUNKS, number):
            for record in map(batch.record, range(len(batch.offsets))):
                if record.key == encode_key(ProgressKey()) and record.value is not None:
                    marker = decode_progress_marker(record.value)
                    found.append(Progress(marker.position, marker.emitted_through_ms, marker.whole_from_ms))
        return found
