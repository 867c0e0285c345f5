"""Streak: records of one lane that a handler runs one after the other, without the consumer's thread in between.

The executor takes from the front; the consumer recalls untaken tasks from the back. A deque hands out each item once,
so no lock is needed. Each task has its own completion; the consumer receives them in order. It is woken for the last
one and for a failure; the others wait in the mailbox until its next step, because waking it takes longer than many
handlers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tsdb.parallel_consumer.scheduling.completion import Completion, Mailbox
from tsdb.parallel_consumer.scheduling.task import Task, TaskOwner

STREAK_RECORDS_MAX = 128  # The rest comes in the next streak. One hand-over for this number of records costs nothing.


class Streak:
    """tasks: at least one, all of one lane, in order. began_at: monotonic time of the hand-over. size: bytes; no record
    is larger.

    One record is handled at a time. The executor stops at the first record that fails or is deferred.
    """

    __slots__ = ("_mailbox", "_unended", "_untaken", "began_at", "owner", "size")

    def __init__(self, tasks: Sequence[Task], mailbox: Mailbox, began_at: float, size: int) -> None:
        self._mailbox = mailbox
        self._untaken = deque(tasks)
        self._unended = deque(tasks)  # The state that the consumer's thread knows.
        self.owner: TaskOwner = tasks[0].owner
        self.began_at = began_at
        self.size = size
        for task in tasks:
            task.streak = self

    def take(self) -> Completion | None:
        """The next to handle, called by the thread that runs the streak; None: none is left."""
        try:
            task = self._untaken.popleft()
        except IndexError:
            return None
        return Completion(task, self._mailbox, skip_wakeup=bool(self._untaken))

    def ended(self, task: Task) -> Task | None:
        """The consumer received a completion: returns the task now running, or None after the last."""
        assert self._unended[0] is task, f"offset {task.record.offset} ended out of turn"
        self._unended.popleft()
        if self._unended:
            return self._unended[0]
        task.streak = None
        return None

    def recall(self, keep: int = 0) -> list[Task]:
        """Remove all untaken tasks except the first `keep`, in order. Taken ones end as usual."""
        recalled: list[Task] = []
        # The executor may take tasks at the same time; then fewer stay. A task that stays can still be taken.
        while len(self._untaken) > keep:
            try:
                recalled.append(self._untaken.pop())
            except IndexError:
                break
        recalled.reverse()
        for _ in recalled:
            self._unended.pop()
        return recalled

    @property
    def over(self) -> bool:
        """Whether all tasks of the streak have ended or were recalled."""
        return not self._unended
