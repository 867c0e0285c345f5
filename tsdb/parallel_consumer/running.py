"""Running: tasks that were begun and have not ended. A task uses one slot, and so does a whole streak.

Of a streak, the task that the consumer expects to end next is counted; its bytes are those of the largest task allowed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from tsdb.parallel_consumer.clock import Clock
from tsdb.parallel_consumer.options import Options
from tsdb.parallel_consumer.order import Place
from tsdb.parallel_consumer.partition import PartitionWork
from tsdb.parallel_consumer.policy import ErrorPolicy
from tsdb.parallel_consumer.streaks import STREAK_RECORDS_MAX, Streak
from tsdb.parallel_consumer.throttle import Throttle
from tsdb.parallel_consumer.work import Mailbox, Work

HURRIED_S = 0.002  # Longest time that a streak keeps its slot while others wait for one.


class Running:
    """One thread. Its length is the number of used slots."""

    def __init__(
        self, options: Options, policy: ErrorPolicy, throttle: Throttle, mailbox: Mailbox, clock: Clock
    ) -> None:
        self._options = options
        self._counts_crashes = policy.crashes_max is not None
        self._throttle = throttle
        self._mailbox = mailbox
        self._clock = clock
        self._works: set[Work] = set()
        self._size = 0
        self._streaks: set[Streak] = set()
        self._hurried_at = 0.0

    def __len__(self) -> int:
        return len(self._works)

    def __iter__(self) -> Iterator[Work]:
        return iter(self._works)

    def has_room_for(self, work: Work) -> bool:
        """Whether its bytes fit beside the others'; a task alone always fits."""
        return not self._works or self._size + work.size <= self._options.running_bytes_max

    def start(self, work: Work) -> None:
        """Give the task a slot; the hand-over follows."""
        _mark(work)
        self._count(work)

    def stop(self, work: Work) -> None:
        """The task has ended, or is not handed over after all."""
        work.running = False
        self._works.discard(work)
        self._size -= _bytes_of(work)
        work.owner.running -= 1

    @property
    def may_streak(self) -> bool:
        """Whether streaks are allowed: no limit applies, and no commit follows each record."""
        if self._options.commit_records is not None:
            return False
        return self._throttle.straight and not self._throttle.control.newest_wins_s

    def streak_from(self, work: Work, now: float) -> Streak | None:
        """A streak of the started task and those behind it in its lane; None when it must run alone."""
        owner, bytes_max = work.owner, self._options.running_bytes_max
        size = max(work.size, bytes_max // self._throttle.slots)
        if work.lane is Place.FREE or work.crashes or self._size - work.size + size > bytes_max:
            return None
        if self._counts_crashes and owner.assigned_at > now - self._options.write_ahead_s:
            return None  # Each record must be committed as running before it begins.
        followers = owner.lanes.take_followers(work, STREAK_RECORDS_MAX - 1, size)
        if not followers:
            return None
        for follower in followers:
            _mark(follower)
        streak = Streak([work, *followers], self._mailbox, now, size)
        self._size += size - work.size
        self._streaks.add(streak)
        return streak

    def go_on(self, work: Work, streak: Streak, error: BaseException | None) -> None:
        """One task of a streak ended: the next one takes its slot. After an error or a deferral the
        rest is recalled.
        """
        if error is not None or work.deferred:
            self._recall([streak])
        following = streak.ended(work)
        if following is None:
            self._streaks.discard(streak)
        else:
            self._count(following)

    def hurry(self, now: float) -> None:
        """Others wait for a slot: recall streaks that have had theirs long enough."""
        if now - self._hurried_at >= HURRIED_S:
            self._hurried_at = now
            # Leave one task: a streak that has no thread yet must not lose its slot over and over.
            self._recall([streak for streak in self._streaks if now - streak.began_at >= HURRIED_S], but=1)

    def recall(self, parts: Collection[PartitionWork] | None = None) -> list[Work]:
        """Return untaken tasks of streaks, of all partitions or of these, to their lanes.

        Returns tasks that lost their slot: they may run again, before all others of their lanes.
        """
        if not self._streaks:
            return []
        return self._recall([one for one in self._streaks if parts is None or one.owner in parts])

    def _recall(self, streaks: Iterable[Streak], but: int = 0) -> list[Work]:
        unbegun: list[Work] = []
        for streak in streaks:
            recalled = streak.recall(but)
            if streak.over:
                # Not even the task that holds the slot was taken.
                self._streaks.discard(streak)
                first = recalled.pop(0)
                self.stop(first)
                _unmark(first)
                unbegun.append(first)
            for work in recalled:
                _unmark(work)
            if recalled:
                streak.owner.lanes.give_back(recalled)
        return unbegun

    def _count(self, work: Work) -> None:
        work.running = True
        if work.began_at is None:
            work.began_at = self._clock.monotonic()
        self._works.add(work)
        self._size += _bytes_of(work)
        work.owner.running += 1
        if self._counts_crashes:
            work.owner.touched[work.slot] = work
            work.owner.dirty = True


def _mark(work: Work) -> None:
    """The task is about to be handed over."""
    work.deferred = False
    work.run += 1


def _unmark(work: Work) -> None:
    """The task was handed over and has not begun."""
    work.streak = None
    work.run -= 1
    if not work.run:
        work.began_at = None


def _bytes_of(work: Work) -> int:
    return work.size if work.streak is None else work.streak.size
