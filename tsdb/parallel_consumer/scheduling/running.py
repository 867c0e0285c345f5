"""Running: counts tasks that have begun and not ended. A task uses one slot, and so does a whole streak.

A streak counts as the task that the consumer expects to end next, with the bytes of the largest allowed task.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from tsdb.parallel_consumer.order import SpecialLane
from tsdb.parallel_consumer.scheduling.completion import Mailbox
from tsdb.parallel_consumer.scheduling.environment import Environment
from tsdb.parallel_consumer.scheduling.streaks import STREAK_RECORDS_MAX, Streak
from tsdb.parallel_consumer.scheduling.task import Task, TaskOwner, TaskStreak
from tsdb.parallel_consumer.scheduling.throttle import Throttle

HURRIED_S = 0.002  # Longest time that a streak keeps its slot while others wait for one.


class Running:
    """Used by one thread. The length is the number of used slots."""

    def __init__(self, env: Environment, throttle: Throttle, mailbox: Mailbox) -> None:
        self._options = env.options
        self._counts_crashes = env.policy.crashes_max is not None
        self._throttle = throttle
        self._mailbox = mailbox
        self._clock = env.clock
        self._tasks: set[Task] = set()
        self._size = 0
        self._streaks: set[TaskStreak] = set()
        self._hurried_at = 0.0

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def has_capacity_for(self, task: Task) -> bool:
        """Whether its bytes fit beside the others'; a task alone always fits."""
        return not self._tasks or self._size + task.size <= self._options.running_bytes_max

    def start(self, task: Task) -> None:
        """Give the task a slot; the hand-over follows."""
        _mark(task)
        self._count(task)

    def stop(self, task: Task) -> None:
        """The task has ended, or is not handed over after all."""
        task.running = False
        self._tasks.discard(task)
        self._size -= _bytes_of(task)
        task.owner.running -= 1

    @property
    def may_streak(self) -> bool:
        """Whether streaks are allowed: no limit applies, and no commit follows each record."""
        if self._options.commit_records is not None:
            return False
        return self._throttle.unrestricted and not self._throttle.control.newest_wins_s

    def streak_from(self, task: Task, now: float) -> Streak | None:
        """A streak of the started task and those behind it in its lane; None when it must run alone."""
        owner, bytes_max = task.owner, self._options.running_bytes_max
        size = max(task.size, bytes_max // self._throttle.slots)
        if task.lane is SpecialLane.UNORDERED or task.crashes or self._size - task.size + size > bytes_max:
            return None
        if self._counts_crashes and owner.assigned_at > now - self._options.write_ahead_s:
            return None  # Each record must be committed as running before it begins.
        followers = owner.take_followers(task, STREAK_RECORDS_MAX - 1, size)
        if not followers:
            return None
        for follower in followers:
            _mark(follower)
        streak = Streak([task, *followers], self._mailbox, now, size)
        self._size += size - task.size
        self._streaks.add(streak)
        return streak

    def go_on(self, task: Task, streak: TaskStreak, error: BaseException | None) -> None:
        """One task of a streak ended: the next one takes its slot. After an error or a deferral the
        rest is recalled.
        """
        if error is not None or task.deferred:
            self._recall([streak])
        following = streak.ended(task)
        if following is None:
            self._streaks.discard(streak)
        else:
            self._count(following)

    def hurry(self, now: float) -> None:
        """Recall streaks that have used their slots long enough, because other tasks wait for a slot."""
        if now - self._hurried_at >= HURRIED_S:
            self._hurried_at = now
            # Leave one task, because a streak that has no thread yet must not lose its slot again and again.
            self._recall([streak for streak in self._streaks if now - streak.began_at >= HURRIED_S], keep=1)

    def recall(self, parts: Collection[TaskOwner] | None = None) -> list[Task]:
        """Return untaken tasks of streaks, of all partitions or of these, to their lanes.

        Returns tasks that lost their slot: they may run again, before all others of their lanes.
        """
        if not self._streaks:
            return []
        return self._recall([one for one in self._streaks if parts is None or one.owner in parts])

    def _recall(self, streaks: Iterable[TaskStreak], keep: int = 0) -> list[Task]:
        untaken: list[Task] = []
        for streak in streaks:
            recalled = streak.recall(keep)
            if streak.over:
                # The executor did not even take the task that has the slot.
                self._streaks.discard(streak)
                first = recalled.pop(0)
                self.stop(first)
                _unmark(first)
                untaken.append(first)
            for task in recalled:
                _unmark(task)
            if recalled:
                streak.owner.give_back(recalled)
        return untaken

    def _count(self, task: Task) -> None:
        task.running = True
        if task.began_at is None:
            task.began_at = self._clock.monotonic()
        self._tasks.add(task)
        self._size += _bytes_of(task)
        task.owner.running += 1
        if self._counts_crashes:
            task.owner.touch(task)


def _mark(task: Task) -> None:
    """Count a run of a task that is about to be handed over."""
    task.deferred = False
    task.run += 1


def _unmark(task: Task) -> None:
    """Undo `_mark` for a task that was handed over and has not begun."""
    task.streak = None
    task.run -= 1
    if not task.run:
        task.began_at = None


def _bytes_of(task: Task) -> int:
    return task.size if task.streak is None else task.streak.size
