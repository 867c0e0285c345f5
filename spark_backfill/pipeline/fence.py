"""Fence: membership of the chunk stage's group, so that a pipeline and other engines keep off each other.

Only who holds all partitions works; whoever else joins gets some, which both sides see. Nothing rests on it for the
contents of `chunks`, which are the same whoever writes them: it keeps work from being done twice, and commits in order.
One thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from chunker.chunker import GROUP_ID
from tsdb.log.interface import METRICS, Log, Position, TopicPartition
from tsdb.model.clock import Clock
from tsdb.model.errors import Unavailable
from tsdb.ops.logs import get_logger

ALONE_WITHIN_S = 20.0  # A member that was killed keeps its partitions for a session, 10 s.
GIVE_WAY_S = 45.0  # Longer than a second pipeline tries before it gives up: only a chunker stays.

log = get_logger(__name__)


class Fence:
    """A context manager: joined and alone inside. Raises Unavailable (group_in_use) on entry when others stay."""

    def __init__(
        self, log_: Log, clock: Clock, *, alone_within_s: float = ALONE_WITHIN_S, give_way_s: float = GIVE_WAY_S
    ) -> None:
        self._group = log_.group(GROUP_ID)
        self._all = frozenset((METRICS, number) for number in range(log_.partitions(METRICS)))
        self._clock = clock
        self._alone_within_s = alone_within_s
        self._give_way_s = give_way_s
        self._missing_since: float | None = None
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
        """Stay a member. Raises Unavailable (group_in_use) once somebody else has held partitions for long."""
        try:
            self._poll(timeout_s)
        except Unavailable as error:
            log.warning("group not to be had", reason=error.reason, error=error.message)
        missing = self._all - self._group.assigned()
        now = self._clock.monotonic()
        if not missing:
            self._missing_since = None
            return
        if self._missing_since is None:
            self._missing_since = now
            log.warning("another member joined the group", partitions=sorted(number for _, number in missing))
        if now - self._missing_since > self._give_way_s:
            raise self._in_use("the pipeline gives way to it")

    @property
    def is_alone(self) -> bool:
        """Whether all partitions are ours."""
        return self._group.assigned() == self._all

    def committed(self) -> dict[int, Position | None]:
        """The group's commits, by partition."""
        return {number: position for (_, number), position in self._group.committed(sorted(self._all)).items()}

    def commit(self, positions: Mapping[int, Position]) -> None:
        """Commit those that are ours. Raises Unavailable."""
        ours = self._group.assigned()
        self._group.commit({(METRICS, n): position for n, position in positions.items() if (METRICS, n) in ours})

    # GroupListener.

    def on_assigned(self, committed: Mapping[TopicPartition, Position | None]) -> Mapping[TopicPartition, int]:
        """Tasks read, not the member: where it would begin does not matter, for it rests."""
        return {place: position.next_offset if position else 0 for place, position in committed.items()}

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """`keep` sees it."""

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """`keep` sees it."""

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
            self._group.rest(topic, number)
        self._resting = ours

    def _in_use(self, advice: str) -> Unavailable:
        held = len(self._all - self._group.assigned())
        return Unavailable(
            f"another member of group {GROUP_ID} holds {held} of {len(self._all)} partitions: {advice}",
            reason="group_in_use",
        )
