"""Known names: (epoch, metric name) pairs that this process has written to history, so that each is written once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tsdb.history.interface import OnDone
from tsdb.model.errors import TsdbError

NAMES_MAX = 100_000

Pair = tuple[int, bytes]


class KnownNames:
    """Thread-safe and bounded: at the bound all pairs are forgotten, which costs one repeated upsert per pair."""

    def __init__(self, names_max: int = NAMES_MAX) -> None:
        self._names_max = names_max
        self._lock = threading.Lock()  # Guards the fields below; nothing is called under it.
        self._known: set[Pair] = set()
        self._waiting: dict[Pair, list[OnDone]] = {}  # Callbacks of each pair that is in flight.
        self._life = 0  # Number of calls of `forget`. A write that began before the last call does not count.

    def forget(self) -> None:
        """Forget all pairs: history may have lost them."""
        with self._lock:
            self._life += 1
            self._known.clear()

    def holds(self, pair: Pair) -> bool:
        """Whether the store has the pair, as far as this process knows."""
        with self._lock:
            return pair in self._known

    def ensure(self, pair: Pair, write: Callable[[OnDone], None], on_done: OnDone) -> None:
        """Call on_done once the store has the pair, or with the error. `write` is called unless a write is in flight.

        Errors of `write` are raised; on_done is then not called.
        """
        with self._lock:
            known = pair in self._known
            waiting, life = self._waiting.get(pair), self._life
            if waiting is not None:
                waiting.append(on_done)
            elif not known:
                self._waiting[pair] = [on_done]
        if known:
            on_done(None)
        elif waiting is None:
            self._write(pair, life, write)

    def _write(self, pair: Pair, life: int, write: Callable[[OnDone], None]) -> None:
        try:
            write(lambda error: self._answer(pair, life, error))
        except TsdbError as error:
            with self._lock:
                _, *others = self._waiting.pop(pair)
            for on_done in others:
                on_done(error)
            raise

    def _answer(self, pair: Pair, life: int, error: TsdbError | None) -> None:
        with self._lock:
            waiting = self._waiting.pop(pair)
            if error is None and life == self._life:
                if len(self._known) >= self._names_max:
                    self._known.clear()
                self._known.add(pair)
        for on_done in waiting:
            on_done(error)
