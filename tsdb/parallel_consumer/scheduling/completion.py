"""Completion: the end of one run of a task, and the mailbox that carries it to the consumer's thread."""

from __future__ import annotations

import threading
from collections import deque
from typing import Protocol

from tsdb.parallel_consumer.scheduling.task import Task


class Completion:
    """Completes one run: called once, from any thread, with the handler's exception, the send error, or None on
    success. Repeated calls are ignored and counted.

    skip_wakeup: a success need not wake the consumer, because the executor has more to run.
    """

    __slots__ = ("_mailbox", "run", "skip_wakeup", "task")

    def __init__(self, task: Task, mailbox: Mailbox, skip_wakeup: bool = False) -> None:
        self.task = task
        self.run = task.run
        self._mailbox = mailbox
        self.skip_wakeup = skip_wakeup

    @property
    def attempt(self) -> int:
        """Number of this attempt, from 1, including attempts before a restart."""
        return self.task.failures + 1

    def __call__(self, error: BaseException | None) -> None:
        if self.skip_wakeup and error is None:
            self._mailbox.put_quietly(self, None)
        else:
            self._mailbox.put(self, error)

    def lost(self, error: BaseException) -> None:
        """Does what a call does, but takes no lock and ends no wait. For finalisers."""
        self._mailbox.put_quietly(self, error)


Outcome = tuple[Completion, BaseException | None]


class Mailbox(Protocol):
    """Passes completions to the consumer's thread."""

    def put(self, completion: Completion, error: BaseException | None) -> None:
        """Deliver a completion and end a wait. Any thread may call it."""

    def put_quietly(self, completion: Completion, error: BaseException | None) -> None:
        """Deliver a completion without ending a wait. Any thread may call it, also a finaliser."""

    def wake(self) -> None:
        """End a wait, from any thread."""

    def take(self) -> list[Outcome]:
        """All completions since the last call."""

    def wait(self, timeout_s: float) -> None:
        """Wait for a completion or a wake, at most timeout_s."""


class ThreadMailbox:
    """Mailbox of real threads."""

    def __init__(self) -> None:
        self._ended: deque[Outcome] = deque()
        self._arrived = threading.Event()

    def put(self, completion: Completion, error: BaseException | None) -> None:
        self._ended.append((completion, error))
        if not self._arrived.is_set():
            self._arrived.set()

    def put_quietly(self, completion: Completion, error: BaseException | None) -> None:
        self._ended.append((completion, error))

    def wake(self) -> None:
        self._arrived.set()

    def take(self) -> list[Outcome]:
        # Clear it first: a completion that arrives in between is taken now, or ends the next wait.
        self._arrived.clear()
        ended = self._ended
        return [ended.popleft() for _ in range(len(ended))]

    def wait(self, timeout_s: float) -> None:
        self._arrived.wait(timeout_s)
