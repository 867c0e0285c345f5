"""Known names: (epoch, metric name) pairs that this process has put into history, so that each is put once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tsdb.history.interface import OnDone
from tsdb.model.errors import TsdbError

NAMES_MAX = 100_000

Pair = tuple[int, bytes]


class KnownNames:
    """Thread-safe and bounded: at the bound all is forgotten, which costs a repeated upsert each."""

    def __init__(self, names_max: int = NAMES_MAX) -> None:
        self._names_max = names_max
        self._lock = threading.Lock()  # Guards what is below; nothing is called under it.
        self._known: set[Pair] = set()
        self._waiting: dict[Pair, list[OnDone]] = {}  # Of each pair on its way: whom to tell.
        self._life = 0  # Moves when all is forgotten: what was begun before counts for nothing.

    def forget(self) -> None:
        """History may not have any of them."""
        with self._lock:
            self._life += 1
            self._known.clear()

    def ensure(self, pair: Pair, write: Callable[[OnDone], None], on_done: OnDone) -> None:
        """Call on_done once the store has the pair, or with why not; `write` is called if nobody writes it already.

        Raises what `write` does; then on_done is not called.
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
