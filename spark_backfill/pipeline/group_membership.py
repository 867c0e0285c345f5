"""Group membership in the chunk stage's consumer group: only one pipeline, or the chunkers, work at a time.

A pipeline works only while it holds all partitions. When another member joins, the group gives it some partitions, and
both sides see that. The contents of `chunks` do not depend on the membership: every engine writes the same bytes. The
membership avoids double work and keeps commits in order. One thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from tsdb.chunks.engine import GROUP_ID
from tsdb.log.interface import METRICS, Log, Position, TopicPartition
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable
from tsdb.ops.logs import get_logger

ALONE_WITHIN_S = 20.0  # A killed member keeps its partitions until its session ends, 10 s.
GIVE_WAY_S = 45.0  # A second pipeline gives up earlier, so a member that stays longer is a chunker.
# A member without partitions checks this often whether the group answers, because a member also loses its partitions
# when no broker answers.
ASK_EVERY_S = 5.0

log = get_logger(__name__)


class GroupMembership:
    """A context manager. Inside it the process is the only member of the group.

    Raises Unavailable (group_in_use) on entry when another member stays.
    """

    def __init__(
        self, log_: Log, clock: Clock, *, alone_within_s: float = ALONE_WITHIN_S, give_way_s: float = GIVE_WAY_S
    ) -> None:
        self._group = log_.group(GROUP_ID, "spark")
        self._all = frozenset((METRICS, number) for number in range(log_.partitions(METRICS)))
        self._clock = clock
        self._alone_within_s = alone_within_s
        self._give_way_s = give_way_s
        self._missing_since: float | None = None
        self._ask_at = 0.0
        self._answered = True
        self._resting: frozenset[TopicPartition] = frozenset()

    def __enter__(self) -> Self:
        try:
            self._group.join([METRICS], self)
            self._wait_alone()
        except BaseException:
            self._group.leave()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._group.leave()

    def keep(self, timeout_s: float) -> None:
        """Stay a member. Raises Unavailable (group_in_use) when another member has had partitions for give_way_s.

        Time in which the group does not answer is not counted.
        """
        try:
            self._poll(timeout_s)
        except Unavailable as error:
            log.warning("group not available", reason=error.reason, error=error.message)
        missing = self._all - self._group.assigned()
        now = self._clock.monotonic()
        if not missing or not self._answers():
            self._missing_since = None
            return
        if self._missing_since is None:
            self._missing_since = now
            log.warning("partitions of the group are missing", partitions=sorted(number for _, number in missing))
        if now - self._missing_since > self._give_way_s:
            raise self._in_use("the pipeline gives way to it")

    @property
    def is_alone(self) -> bool:
        """Whether this member holds all partitions."""
        return self._group.assigned() == self._all

    def committed(self) -> dict[int, Position | None]:
        """Committed positions of the group by partition; None: no commit yet."""
        return {number: position for (_, number), position in self._group.committed(sorted(self._all)).items()}

    def commit(self, positions: Mapping[int, Position]) -> None:
        """Commit the positions of partitions that this member holds. Raises Unavailable."""
        ours = self._group.assigned()
        self._group.commit({(METRICS, n): position for n, position in positions.items() if (METRICS, n) in ours})

    # GroupListener.

    def on_assigned(self, committed: Mapping[TopicPartition, Position | None]) -> Mapping[TopicPartition, int]:
        """Start offsets, which do not matter: tasks read the log, and this member's partitions are paused."""
        return {place: position.next_offset if position else 0 for place, position in committed.items()}

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing to do: `keep` compares the assignment."""

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Nothing to do: `keep` compares the assignment."""

    def _wait_alone(self) -> None:
        give_up_at = self._clock.monotonic() + self._alone_within_s
        while True:
            self._poll(0.1)
            if self.is_alone:
                return
            if self._clock.monotonic() > give_up_at:
                raise self._in_use("stop every chunker and pipeline first")

    def _poll(self, timeout_s: float) -> None:
        self._group.poll(timeout_s, max_records=1)
        ours = self._group.assigned()
        for topic, number in ours - self._resting:
            self._group.pause(topic, number)
        self._resting = ours

    def _answers(self) -> bool:
        """Whether the group answered the last question, asked again after ASK_EVERY_S."""
        if self._clock.monotonic() >= self._ask_at:
            try:
                self._group.committed(sorted(self._all))
                self._answered = True
            except Unavailable as error:
                self._answered = False
                log.warning("group does not answer", reason=error.reason, error=error.message)
            self._ask_at = self._clock.monotonic() + ASK_EVERY_S
        return self._answered

    def _in_use(self, advice: str) -> Unavailable:
        held = len(self._all - self._group.assigned())
        return Unavailable(
            f"another member of group {GROUP_ID} holds {held} of {len(self._all)} partitions: {advice}",
            reason="group_in_use",
        )
