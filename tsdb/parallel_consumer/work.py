"""Work: one record, or a block of them, on its way through the consumer; and the mailbox in which its end arrives."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tsdb.parallel_consumer.columns import Columns
from tsdb.parallel_consumer.outlet import OutRecord
from tsdb.parallel_consumer.record import Record

if TYPE_CHECKING:
    from tsdb.parallel_consumer.partition import PartitionWork
    from tsdb.parallel_consumer.streaks import Streak


@dataclass(slots=True, eq=False)
class Work:
    """One record that is not finished, or a block of such.

    slot: its place in the tracker. size: bytes of key and value. run: how often it was started by this process, so that
    an end which is told twice is known. blocked: how often in a row it ran into something that is away. letter: what is
    sent in its place, once it was given up. began_at: monotonic seconds of its first start. stage: how many limits
    have let it through. deferred: its handler has returned, and somebody else is to tell its end.
    block: the rows of a block, whose first is `record`; the tracker's place of row i is slot + i. streak: what it was
    handed over in with others of its lane; None once it is the last of that to end.
    """

    record: Record
    slot: int
    owner: PartitionWork
    lane: Hashable
    size: int
    failures: int = 0
    crashes: int = 0
    blocked: int = 0
    run: int = 0
    running: bool = False
    letter: OutRecord | None = None
    letter_kind: str = ""
    began_at: float | None = None
    error: str = ""
    stage: int = 0
    deferred: bool = False
    block: Columns | None = None
    streak: Streak | None = None

    @property
    def count(self) -> int:
        """Records in it."""
        return 1 if self.block is None else len(self.block)

    @property
    def span(self) -> int:
        """Offsets from its first to its last."""
        return 1 if self.block is None else int(self.block.offsets[-1]) - self.record.offset + 1


class Ending:
    """The end of one run, to be told: called once, from any thread, with what the handler raised, or why the letter was
    not sent, or None when all is well. What is told more than once is ignored and counted.
    unhurried: that all is well need not be known at once, for whoever ran it has more to do.
    """

    __slots__ = ("_mailbox", "run", "unhurried", "work")

    def __init__(self, work: Work, mailbox: Mailbox, unhurried: bool = False) -> None:
        self.work = work
        self.run = work.run
        self._mailbox = mailbox
        self.unhurried = unhurried

    @property
    def attempt(self) -> int:
        """Which try this is, from 1; those before a restart count."""
        return self.work.failures + 1

    def __call__(self, error: BaseException | None) -> None:
        if self.unhurried and error is None:
            self._mailbox.leave(self, None)
        else:
            self._mailbox.put(self, error)

    def lost(self, error: BaseException) -> None:
        """As called, from where no lock may be taken: nobody is woken."""
        self._mailbox.leave(self, error)


Ended = tuple[Ending, BaseException | None]


class Mailbox(Protocol):
    """Ends on their way to the thread that owns the consumer."""

    def put(self, ending: Ending, error: BaseException | None) -> None:
        """From any thread."""

    def leave(self, ending: Ending, error: BaseException | None) -> None:
        """From any thread at any point of it, a finaliser too: ends no wait."""

    def wake(self) -> None:
        """End a wait, from any thread."""

    def take(self) -> list[Ended]:
        """All that have come."""

    def wait(self, timeout_s: float) -> None:
        """Until one comes or somebody wakes us, timeout_s at most."""


class ThreadMailbox:
    """The mailbox of real threads."""

    def __init__(self) -> None:
        self._ended: deque[Ended] = deque()
        self._arrived = threading.Event()

    def put(self, ending: Ending, error: BaseException | None) -> None:
        self._ended.append((ending, error))
        if not self._arrived.is_set():
            self._arrived.set()

    def leave(self, ending: Ending, error: BaseException | None) -> None:
        self._ended.append((ending, error))

    def wake(self) -> None:
        self._arrived.set()

    def take(self) -> list[Ended]:
        # Cleared first: what comes in between is taken now, or wakes the next wait.
        self._arrived.clear()
        ended = self._ended
        return [ended.popleft() for _ in range(len(ended))]

    def wait(self, timeout_s: float) -> None:
        self._arrived.wait(timeout_s)
