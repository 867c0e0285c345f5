"""Known names: (epoch, metric name) pairs that this process has put into history, so that each is put once."""

from __future__ import annotations

import threading

from tsdb.history.interface import OnDone
from tsdb.model.errors import TsdbError

NAMES_MAX = 100_000


class KnownNames:
    """Thread-safe and bounded: at the bound all is forgotten, which costs a repeated upsert each."""

    def __init__(self, names_max: int = NAMES_MAX) -> None:
        self._names_max = names_max
        self._lock = threading.Lock()  # Guards the set.
        self._known: set[tuple[int, bytes]] = set()

    def __contains__(self, pair: tuple[int, bytes]) -> bool:
        with self._lock:
            return pair in self._known

    def once_written(self, pair: tuple[int, bytes], on_done: OnDone) -> OnDone:
        """on_done, which also notes that the store has the pair."""

        def done(error: TsdbError | None) -> None:
            if error is None:
                self._add(pair)
            on_done(error)

        return done

    def _add(self, pair: tuple[int, bytes]) -> None:
        with self._lock:
            if len(self._known) >= self._names_max:
                self._known.clear()
            self._known.add(pair)
