"""Writes of a restore: a group of rows at a time, repeated until history has all of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from tsdb.history.interface import OnDone
from tsdb.model.clock import Clock
from tsdb.model.errors import Overloaded, TsdbError, Unavailable

PAUSES_S = (1.0, 2.0, 4.0, 8.0, 15.0)  # Outlasts the restart of a node.
ANSWER_WITHIN_S = 120.0

Begin = Callable[[OnDone], None]


def write_all(begins: Sequence[Begin], clock: Clock) -> None:
    """Begin all writes and wait for their answers; repeat those that failed. Raises the last error."""
    for pause_s in (*PAUSES_S, None):
        begins, error = _try(begins)
        if error is None:
            return
        if pause_s is None or not isinstance(error, Unavailable | Overloaded):
            raise error
        clock.sleep(pause_s)


def _try(begins: Sequence[Begin]) -> tuple[Sequence[Begin], TsdbError | None]:
    """Writes that failed or did not begin, and the first error. After a failure no more writes begin."""
    answers = _Answers(len(begins))
    for number, begin in enumerate(begins):
        if answers.error is not None:
            break
        try:
            begin(answers.of(number))
        except TsdbError as error:
            answers.of(number)(error)
    return [begins[number] for number in answers.wait()], answers.error


class _Answers:
    """The answers to writes, by number. Thread-safe."""

    def __init__(self, count: int) -> None:
        self._changed = threading.Condition()  # Guards the fields below.
        self._left = set(range(count))
        self._waiting: set[int] = set()
        self.error: TsdbError | None = None

    def of(self, number: int) -> OnDone:
        """The on_done of a write that begins now."""
        with self._changed:
            self._waiting.add(number)

        def on_done(error: TsdbError | None) -> None:
            with self._changed:
                self._waiting.discard(number)
                if error is None:
                    self._left.discard(number)
                self.error = self.error or error
                if not self._waiting:
                    self._changed.notify_all()

        return on_done

    def wait(self) -> list[int]:
        """Wait for the writes that began. Returns the numbers of all without success."""
        with self._changed:
            if not self._changed.wait_for(lambda: not self._waiting, ANSWER_WITHIN_S):
                self.error = self.error or Unavailable(
                    f"history did not answer {len(self._waiting)} writes within {ANSWER_WITHIN_S:g} s", reason="timeout"
                )
            return sorted(self._left)
