"""Member: the one thread of a chunker. It is a member of the group and steps every assigned partition."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from chunker.partition import ChunkPartition, WriteState
from tsdb.log.interface import METRICS, Group, Position, TopicPartition
from tsdb.model.clock import Clock
from tsdb.model.errors import LostOffsets, Unavailable
from tsdb.ops.interpreter import MallocTrimmer
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import ThreadComponent
from tsdb.replay.upkeep import Upkeep

POLL_S = 5.0  # A record, a change of the assignment, and a close end a poll early.
JOINING_POLL_S = 0.05  # Poll time of a member without partitions, until the group assigns one.
ANSWERS_S = 0.01  # How long to wait for answers of the log before the next poll of the group.
JOIN_AGAIN_S = 0.5
DRAIN_S = 10.0

log = get_logger(__name__)


class Member(ThreadComponent):
    """`make_partition` is called for each assigned partition; `changed` is set when the log answers.

    Implements GroupListener: called on this thread, within poll and leave.
    """

    def __init__(
        self,
        group: Group,
        make_partition: Callable[[int], ChunkPartition],
        changed: threading.Event,
        clock: Clock,
        records_max: int,
    ) -> None:
        super().__init__("chunker")
        self._group = group
        self._make_partition = make_partition
        self._changed = changed
        self._clock = clock
        self._records_max = records_max
        self.partitions: Mapping[int, ChunkPartition] = {}
        """The assigned partitions. The mapping is replaced, never changed, so any thread may read it."""
        self._trimmer = MallocTrimmer(clock)
        self._upkeep = Upkeep(clock)
        self._aborting = threading.Event()
        self._beat_at: float | None = None

    def close(self) -> None:
        """Stop beginning new work; finish writes that wait for the log, then leave the group."""
        super().close()
        self._group.wake()

    def abort(self) -> None:
        """Drop all work and leave the group."""
        self._aborting.set()
        self.close()

    @property
    def is_spare(self) -> bool:
        """See Group.is_spare for the contract."""
        return self._group.is_spare()

    def silent_s(self) -> float:
        """Seconds since the last round began; 0 before the first round, which may wait for kernels to compile."""
        beat_at = self._beat_at
        return 0.0 if beat_at is None else self._clock.monotonic() - beat_at

    # GroupListener.

    def on_assigned(self, committed: Mapping[TopicPartition, Position | None]) -> Mapping[TopicPartition, int]:
        """Add the partitions. Their start offsets are resolved when they are stepped: the log may not answer now, and
        this callback must return."""
        fresh = {partition: self._make_partition(partition) for _, partition in committed}
        self.partitions = {**self.partitions, **fresh}
        log.info("partitions assigned", partitions=sorted(fresh))
        return {place: position.next_offset if position else 0 for place, position in committed.items()}

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Give the partitions up. Their next owner repeats all work that is not committed."""
        self._give_up({partition for _, partition in partitions})

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Act like on_revoked, which commits nothing either. This member has to join the group again."""
        self._give_up({partition for _, partition in partitions})

    def _give_up(self, gone: set[int]) -> None:
        log.info("partitions given up", partitions=sorted(gone))
        for partition in gone & self.partitions.keys():
            self.partitions[partition].give_up()
        self.partitions = {number: kept for number, kept in self.partitions.items() if number not in gone}

    # The thread.

    def _run(self) -> None:
        if self._join_group():
            try:
                self._loop()
                self._drain()
            finally:
                self._group.leave()

    def _join_group(self) -> bool:
        while not self._closing.is_set():
            try:
                self._group.join([METRICS], self)
                return True
            except Unavailable as error:
                log.warning("cannot join the group yet", reason=error.reason, error=error.message)
                self._closing.wait(JOIN_AGAIN_S)
        return False

    def _loop(self) -> None:
        while not self._closing.is_set():
            self._beat_at = self._clock.monotonic()
            states = {partition.step() for partition in list(self.partitions.values()) if partition.rest_s() <= 0.0}
            if WriteState.WAITING in states and WriteState.WRITING not in states:
                self._changed.wait(ANSWERS_S)
            self._changed.clear()
            self._poll(self._idle_s() if states <= {WriteState.IDLE} else 0.0)
            if self._upkeep.due_in_s() <= 0.0:
                self._maintain()

    def _idle_s(self) -> float:
        """How long a poll may wait: until a partition or the upkeep has something to do."""
        longest_s = POLL_S if self.partitions or self._group.is_spare() else JOINING_POLL_S
        rests_s = [partition.rest_s() for partition in self.partitions.values()]
        return min(longest_s, self._upkeep.due_in_s(), *rests_s)

    def _poll(self, timeout_s: float) -> None:
        try:
            events = self._group.poll(timeout_s, max_records=self._records_max)
        except LostOffsets as error:
            # The partition may have been given up within this poll.
            lost = self.partitions.get(int(error.metadata["partition"]))
            if lost is not None:
                lost.source.fail(error)
            return
        except Unavailable as error:
            log.warning("group not available", reason=error.reason, error=error.message)
            self._closing.wait(JOIN_AGAIN_S)
            return
        if events:
            self._upkeep.hurry()
        for event in events:
            # The partition may have been given up within this poll.
            if event.partition in self.partitions:
                self.partitions[event.partition].source.put(event)

    def _maintain(self) -> None:
        stages = {
            number: partition.stage
            for number, partition in self.partitions.items()
            if partition.stage is not None and not partition.stopped
        }
        self._upkeep.run(stages)
        # At its memory limit a partition reads nothing, so only a round of maintenance can free memory.
        waiting = [number for number in stages if self.partitions[number].waiting]
        if waiting:
            self._upkeep.hurry(waiting)
        self._trimmer.trim_if_due()

    def _drain(self) -> None:
        """Finish writes that wait for answers, so that the next owner has less to repeat."""
        deadline = Deadline.after(DRAIN_S)
        while not self._aborting.is_set() and not deadline.expired:
            waiting = [partition for partition in self.partitions.values() if not partition.drain()]
            if not waiting:
                return
            self._changed.wait(ANSWERS_S)
            self._changed.clear()
