"""Work: one record on its way through the consumer, and the mailbox through which its completion comes back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tsdb.parallel_consumer.outlet import OutRecord
from tsdb.parallel_consumer.record import Record

if TYPE_CHECKING:
    from tsdb.parallel_consumer.partition import PartitionWork


@dataclass(slots=True, eq=False)
class Work:
    """One record that is not finished.

    slot: its place in the tracker. run: how often it was started by this process, so that a completion which comes
    twice is known. blocked: how often in a row it ran into something that is away. letter: what is sent in its place,
    once it was given up. began_at: monotonic seconds of its first start.
    """

    record: Record
    slot: int
    owner: PartitionWork
    lane: Hashable
    failures: int = 0
    crashes: int = 0
    blocked: int = 0
    run: int = 0
    running: bool = False
    letter: OutRecord | None = None
    letter_kind: str = ""
    began_at: float | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """The end of one run. error: what the handler raised, or why the letter was not sent; None: all is well."""

    work: Work
    run: int
    error: BaseException | None


class Mailbox(Protocol):
    """Completions on their way to the thread that owns the consumer."""

    def put(self, work: Work, run: int, error: BaseException | None) -> None:
        """From any thread."""

    def wake(self) -> None:
        """End a wait, from any thread."""

    def take(self) -> list[Completion]:
        """All that have come."""

    def wait(self, timeout_s: float) -> None:
        """Until one comes or somebody wakes us, timeout_s at most."""


class ThreadMailbox:
    """The mailbox of real threads."""

    def __init__(self) -> None:
        self._completions: deque[Completion] = deque()
        self._arrived = threading.Event()

    def put(self, work: Work, run: int, error: BaseException | None) -> None:
        self._completions.append(Completion(work, run, error))
        if not self._arrived.is_set():
            self._arrived.set()

    def wake(self) -> None:
        self._arrived.set()

    def take(self) -> list[Completion]:
        # Cleared first: what comes in between is taken now, or wakes the next wait.
        self._arrived.clear()
        taken: list[Completion] = []
        while self._completions:
            taken.append(self._completions.popleft())
        return taken

    def wait(self, timeout_s: float) -> None:
        self._arrived.wait(timeout_s)
