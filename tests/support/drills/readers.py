"""Readers: clients of several stores that follow readiness, as a load balancer does, and query all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.client import Client, Unavailable, connect

LOOK_EVERY_S = 0.2
TRY_S = 5.0
QUERY_WITHIN_S = 10.0


@dataclass(slots=True)
class _Outcomes:
    """answered: number of answers of each store. passed_on: sent to the next store after a refusal. failed: no store
    answered in time.
    """

    answered: list[int] = field(default_factory=list)
    passed_on: int = 0
    failed: list[str] = field(default_factory=list)


class Readers:
    """Threads that query one selector over and over. A context manager: leaving it stops them.

    A query goes to a store that was ready at the last look; refused, it goes to the next one. It has failed when none
    answered within QUERY_WITHIN_S, or when an answer had other than the `samples` wanted. rest_s: the pause of a thread
    after each of its queries.
    """

    def __init__(
        self,
        stores: Sequence[Role],
        selector: str,
        span: tuple[int, int],
        samples: int,
        threads: int,
        *,
        rest_s: float = 0.0,
    ) -> None:
        self._stores = stores
        self._selector = selector
        self._span = span
        self._samples = samples
        self._rest_s = rest_s
        self._ready = [False] * len(stores)
        self._outcomes = [_Outcomes() for _ in range(threads)]
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._look)]
        self._threads += [threading.Thread(target=self._run, args=(number,)) for number in range(threads)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join(2 * QUERY_WITHIN_S)
            assert not thread.is_alive()

    @property
    def answered(self) -> int:
        """Queries answered in full."""
        return sum(len(outcome.answered) for outcome in self._outcomes)

    @property
    def passed_on(self) -> int:
        """Number of tries that another store took over."""
        return sum(outcome.passed_on for outcome in self._outcomes)

    @property
    def failed(self) -> list[str]:
        """Queries that were not answered, or wrongly."""
        return [text for outcome in self._outcomes for text in outcome.failed]

    def answered_by(self, store: int) -> int:
        """Queries that one store answered."""
        return sum(list(outcome.answered).count(store) for outcome in self._outcomes)

    def wait_for_answers(self, count: int, within_s: float = 60.0) -> None:
        """Wait until `count` more queries were answered."""
        goal = self.answered + count
        wait_until(lambda: self.answered >= goal, within_s)

    def wait_for_answers_of(self, store: int, count: int, within_s: float = 60.0) -> None:
        """Wait until one store has answered `count` more queries."""
        goal = self.answered_by(store) + count
        wait_until(lambda: self.answered_by(store) >= goal, within_s)

    def _look(self) -> None:
        while not self._stopping.is_set():
            for number, store in enumerate(self._stores):
                self._ready[number] = store.ready()[0] == 200
            self._stopping.wait(LOOK_EVERY_S)

    def _run(self, thread: int) -> None:
        clients = [connect(store.grpc) for store in self._stores]
        turn = thread
        while not self._stopping.is_set():
            turn += 1
            self._query(clients, turn, self._outcomes[thread])
            self._stopping.wait(self._rest_s)
        for client in clients:
            client.close()

    def _query(self, clients: Sequence[Client], turn: int, outcome: _Outcomes) -> None:
        give_up_at = time.monotonic() + QUERY_WITHIN_S
        refusal = "no store was ready"
        while time.monotonic() < give_up_at:
            turn += 1
            number = turn % len(clients)
            if not self._ready[number]:
                self._stopping.wait(0 if any(self._ready) else LOOK_EVERY_S)
                continue
            try:
                answer = clients[number].select(self._selector, *self._span, timeout_s=TRY_S)
            except Unavailable as error:
                self._ready[number] = False  # Wait until the next check.
                outcome.passed_on += 1
                refusal = f"store {number}: {error.message} ({error.reason})"
                continue
            if answer.samples == self._samples:
                outcome.answered.append(number)
            else:
                outcome.failed.append(f"store {number}: {answer.samples} samples, want {self._samples}")
            return
        outcome.failed.append(refusal)
