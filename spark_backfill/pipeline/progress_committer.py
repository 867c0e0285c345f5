"""Progress committer: after all chunks of a batch are acknowledged, writes progress markers, then commits positions.

A repeated commit writes the same values. A missing one is covered by that of the next batch, of the next run, or of
the Python chunker. Owned by the driver's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from spark_backfill.pipeline.group_membership import GroupMembership
from spark_backfill.pipeline.offsets import is_done
from tsdb.chunks.progress import Progress, encode_progress
from tsdb.chunks.stage_metrics import StageMetrics
from tsdb.codec.chunk.key import ProgressKey, encode_key
from tsdb.codec.chunk.marker import encode_progress_marker
from tsdb.log.interface import CHUNKS, METRICS, SERIES, Log, Position
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.logs import get_logger

log = get_logger(__name__)


class ProgressCommitter:
    """committed: progress by partition, as in the group's commits."""

    def __init__(
        self,
        log_: Log,
        membership: GroupMembership,
        committed: Mapping[int, Progress],
        metrics: StageMetrics,
        clock: Clock,
    ) -> None:
        self._log = log_
        self._topic_id = log_.topic_id(METRICS)
        self._membership = membership
        self._metrics = metrics
        self._clock = clock
        self.committed = dict(committed)
        self._show_commit(committed)

    def commit(self, done: Mapping[int, Progress]) -> bool:
        """Commit the progress of partitions that is ahead of their commit. False: not possible now, try again."""
        new = {number: progress for number, progress in done.items() if not self._is_committed(number, progress)}
        if not new:
            return True
        self._metrics.commits.inc()
        try:
            self._write_markers(new)
            self._membership.commit(
                {n: Position(p.position, encode_progress(p, self._topic_id)) for n, p in new.items()}
            )
        except Unavailable as error:
            self._metrics.commit_failed(error.reason)
            log.warning("progress not committed", reason=error.reason, error=error.message)
            return False
        self.committed.update(new)
        self._show_commit(new)
        return True

    def _show_commit(self, partitions: Iterable[int]) -> None:
        now_ms = self._clock.now_ms()
        for number in partitions:
            self._metrics.committed(number, now_ms)

    def _is_committed(self, number: int, progress: Progress) -> bool:
        committed = self.committed.get(number)
        return committed is not None and is_done(progress, committed)

    def _write_markers(self, new: Mapping[int, Progress]) -> None:
        """Write all markers and wait: a marker must be acknowledged before its position is committed."""
        # Read here, because the last record below each position was read before.
        ends = self._log.watermarks(SERIES, sorted(new))
        failed: list[TsdbError] = []

        def on_done(answer: object) -> None:
            if isinstance(answer, TsdbError):
                failed.append(answer)

        for number, progress in new.items():
            value = encode_progress_marker(progress.marker(self._topic_id, ends[number].high))
            self._log.append(CHUNKS, number, value, key=encode_key(ProgressKey()), on_done=on_done)
        self._log.flush(30.0)
        if failed:
            raise failed[0]
