"""Worker: runs one consumer and its share of the partitions on one thread.

It opens the replay as soon as the log answers, steps the replay, maintains the heads, and notifies readers of
newly visible records. Its poll waits for records: an idle worker makes a step every five seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tsdb.head.head import Head
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable
from tsdb.model.placement import DEFAULT_PLACEMENT_LABELS
from tsdb.ops.interpreter import MallocTrimmer
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import ThreadComponent
from tsdb.replay.replay import Replay
from tsdb.replay.upkeep import Upkeep
from tsdb.store.applied import AppliedSignal
from tsdb.store.memory_reports import MemoryReports
from tsdb.store.partition import Partition
from tsdb.store.snapshots.snapshots import Snapshots

POLL_S = 5.0  # A record, and a close, end a poll early.
OPEN_AGAIN_S = 0.5

log = get_logger(__name__)


class Worker(ThreadComponent):
    """Owns a Replay and the heads behind it. `open_replay` is called on the worker's own thread."""

    def __init__(
        self,
        name: str,
        partitions: Mapping[int, Partition],
        open_replay: Callable[[], Replay[Head]],
        applied: AppliedSignal,
        clock: Clock,
        records_max: int,
        trimmer: MallocTrimmer,
        placement_labels: Sequence[str] = DEFAULT_PLACEMENT_LABELS,
        snapshots: Snapshots | None = None,
    ) -> None:
        super().__init__(name)
        self._snapshots = snapshots
        self._partitions = partitions
        self._open_replay = open_replay
        self._applied = applied
        self._clock = clock
        self._records_max = records_max
        self._trimmer = trimmer
        self._memory_reports = MemoryReports(placement_labels, clock)
        self._upkeep = Upkeep(clock)
        self._beat_at: float | None = None
        self._replay: Replay[Head] | None = None

    def close(self) -> None:
        """See ThreadComponent.close for the contract."""
        super().close()
        if self._replay is not None:
            self._replay.wake()

    def silent_s(self) -> float:
        """Seconds since the last step began; 0 before the first step."""
        beat_at = self._beat_at
        return 0.0 if beat_at is None else self._clock.monotonic() - beat_at

    def _run(self) -> None:
        try:
            replay = self._open()
            if replay is None:
                return
            self._replay = replay
            try:
                self._loop(replay)
                self._take_last_snapshots(replay)
            finally:
                replay.close()
        except BaseException:
            self._set_waiting("worker_failed")
            raise
        finally:
            self._applied.notify()

    def _open(self) -> Replay[Head] | None:
        """The replay, as soon as the log answers; None when the worker was closed before."""
        self._set_waiting("replaying")
        while not self._closing.is_set():
            try:
                return self._open_replay()
            except Unavailable as error:
                log.warning("replay cannot begin yet", reason=error.reason, error=error.message)
                self._set_waiting(error.reason)
                self._closing.wait(OPEN_AGAIN_S)
        return None

    def _loop(self, replay: Replay[Head]) -> None:
        while not self._closing.is_set():
            self._beat_at = self._clock.monotonic()
            step = replay.step(min(POLL_S, self._upkeep.due_in_s()), records_max=self._records_max)
            without_capacity = self._publish_waiting(replay)
            if step.records:
                self._applied.notify()
            if step.records or without_capacity:
                self._upkeep.hurry(without_capacity)
            if self._upkeep.due_in_s() <= 0.0:
                self._upkeep.run({number: partition.head for number, partition in self._partitions.items()})
                self._take_snapshots(replay)
                self._trimmer.trim_if_due()

    def _take_snapshots(self, replay: Replay[Head]) -> None:
        if self._snapshots is None:
            return
        for number, partition in self._partitions.items():
            self._snapshots.offer(number, partition.head, replay.series_next_offset(number), partition.is_ready)

    def _take_last_snapshots(self, replay: Replay[Head]) -> None:
        if self._snapshots is None:
            return
        for number, partition in self._partitions.items():
            if not partition.progress.stopped:
                self._snapshots.offer_last(number, partition.head, replay.series_next_offset(number))

    def _publish_waiting(self, replay: Replay[Head]) -> list[int]:
        """Returns the partitions whose memory is full."""
        without_capacity: list[int] = []
        for number, partition in self._partitions.items():
            waiting = replay.waiting_for(number)
            if waiting is None:
                partition.observe_waiting("")
            else:
                partition.observe_waiting(waiting.reason, self._memory_reports.message(partition.head, waiting))
                without_capacity.append(number)
        return without_capacity

    def _set_waiting(self, waiting: str) -> None:
        for partition in self._partitions.values():
            partition.observe_waiting(waiting)
