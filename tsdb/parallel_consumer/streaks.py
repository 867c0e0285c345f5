"""Streaks: records of one lane that a handler takes one after the other, without the consumer's thread in between.

Whoever runs a streak takes from its front; the consumer recalls from its back what nobody has taken. A deque gives each
item once, so what either has got the other has not, and no lock is needed. Each record ends by itself: the consumer
hears of them in order, and goes by the last it has heard of. It is woken for the last one and for what failed; of those
in between it hears when it looks, for waking it takes longer than many a handler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tsdb.parallel_consumer.partition import PartitionWork
from tsdb.parallel_consumer.work import Ending, Mailbox, Work

STREAK_RECORDS_MAX = 128  # What more there is comes in the next one; a hand-over in so many costs nothing.


class Streak:
    """works: at least one, of one lane, in order. began_at: monotonic seconds, when it was handed over. size: bytes, of
    which none of them has more.

    One record of it is handled at a time. Whoever runs it stops at the first that fails or whose end is deferred.
    """

    __slots__ = ("_mailbox", "_unended", "_untaken", "began_at", "owner", "size")

    def __init__(self, works: Sequence[Work], mailbox: Mailbox, began_at: float, size: int) -> None:
        self._mailbox = mailbox
        self._untaken = deque(works)
        self._unended = deque(works)  # As the consumer has heard.
        self.owner: PartitionWork = works[0].owner
        self.began_at = began_at
        self.size = size
        for work in works:
            work.streak = self

    def take(self) -> Ending | None:
        """The next to handle, from the thread that runs the streak; None: there is none left."""
        try:
            work = self._untaken.popleft()
        except IndexError:
            return None
        return Ending(work, self._mailbox, unhurried=bool(self._untaken))

    def ended(self, work: Work) -> Work | None:
        """The consumer has heard that it ended: what is handled since, or None when that was the last."""
        assert self._unended[0] is work, f"offset {work.record.offset} ended out of turn"
        self._unended.popleft()
        if self._unended:
            return self._unended[0]
        work.streak = None
        return None

    def recall(self, but: int = 0) -> list[Work]:
        """All that nobody has taken but the first so many, in order: nobody will. What was taken ends as ever."""
        recalled: list[Work] = []
        # Whoever takes meanwhile takes what was to be left, and then less is: one that is left alone stays takeable.
        while len(self._untaken) > but:
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
        """Whether nothing of it is to end any more."""
        return not self._unended
