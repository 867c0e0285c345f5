"""Acks: the log's answers to one batch of appends, with one callback for all of them.

Answers may come from any thread, also during the append. Each append answers once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from tsdb.log.interface import Appended
from tsdb.model.errors import TsdbError

Answer = Appended | TsdbError


class Acks:
    """`answers[i]` belongs to the i-th `expect()`. `on_all(answers)` runs once, after `seal()` and the last answer."""

    def __init__(self, on_all: Callable[[list[Answer | None]], None]) -> None:
        self.answers: list[Answer | None] = []
        self._on_all = on_all
        self._lock = threading.Lock()  # Guards _pending and the first write of each answer.
        self._pending = 1  # One for the sender, until seal(): inline answers must not complete a half-sent batch.

    def expect(self) -> Callable[[Answer], None]:
        """The callback of one append. Only for the sender's thread."""
        index = len(self.answers)
        self.answers.append(None)
        with self._lock:
            self._pending += 1
        return partial(self._answer, index)

    def seal(self) -> None:
        """State that no append follows."""
        self._count_down()

    def _answer(self, index: int, answer: Answer) -> None:
        assert self.answers[index] is None, f"append {index} was answered twice"
        self.answers[index] = answer
        self._count_down()

    def _count_down(self) -> None:
        with self._lock:
            self._pending -= 1
            if self._pending:
                return
        self._on_all(self.answers)
