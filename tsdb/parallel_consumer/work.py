"""Task: one record, or a block of records, on its way through the consumer; and the mailbox for its completion."""

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
    """One unfinished record, or a block of them.

    slot: its index in the tracker. size: bytes of key and value. run: how often this process started it; distinguishes
    a repeated completion from the current one.
    blocked: failures in a row caused by an unavailable dependency. letter: the record sent in its place, once one is.
    began_at: monotonic seconds of its first start.
    stage: number of limits passed. deferred: its handler has returned, and a Deferral finishes it.
    block: the rows of a block, whose first is `record`; row i has slot + i in the tracker. streak: the streak it was
    handed over in; None once it is the last of it to end.
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
        return 1 if self.block is None else len(self.block)

    @property
    def span(self) -> int:
        """Offsets from its first record to its last."""
        return 1 if self.block is None else int(self.block.offsets[-1]) - self.record.offset + 1


class Ending:
    """Completes one run: called once, from any thread, with the handler's exception, the send error, or None on
    success. Repeated calls are ignored and counted.

    unhurried: a success need not wake the consumer, because the executor has more to run.
    """

    __slots__ = ("_mailbox", "run", "unhurried", "work")

    def __init__(self, work: Work, mailbox: Mailbox, unhurried: bool = False) -> None:
        self.work = work
        self.run = work.run
        self._mailbox = mailbox
        self.unhurried = unhurried

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1, including attempts before a restart."""
        return self.work.failures + 1

    def __call__(self, error: BaseException | None) -> None:
        if self.unhurried and error is None:
            self._mailbox.leave(self, None)
        else:
            self._mailbox.put(self, error)

    def lost(self, error: BaseException) -> None:
        """As a call, for places where no lock may be taken: wakes nothing."""
        self._mailbox.leave(self, error)


Ended = tuple[Ending, BaseException | None]


class Mailbox(Protocol):
    """Completions on their way to the consumer's thread."""

    def put(self, ending: Ending, error: BaseException | None) -> None:
        """Deliver a completion and end a wait. From any thread."""

    def leave(self, ending: Ending, error: BaseException | None) -> None:
        """From any thread, also from a finaliser: does not end a wait."""

    def wake(self) -> None:
        """End a wait, from any thread."""

    def take(self) -> list[Ended]:
        """All completions since the last call."""

    def wait(self, timeout_s: float) -> None:
        """Wait for a completion or a wake, at most timeout_s."""


class ThreadMailbox:
    """A mailbox between threads."""

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
        # Clear first: a completion that arrives in between is taken now, or ends the next wait.
        self._arrived.clear()
        ended = self._ended
        return [ended.popleft() for _ in range(len(ended))]

    def wait(self, timeout_s: float) -> None:
        self._arrived.wait(timeout_s)
