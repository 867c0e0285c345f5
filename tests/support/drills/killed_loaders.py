"""Loaders that come one after another, each killed at a random instant of its life."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from support.servers.loaders import Lifeline, MortalLog, MortalStore
from support.servers.logs import wait_until
from support.servers.way import WITHIN_S, Way
from tsdb.history.loader.loader import Loader, LoaderOptions

LONGEST_LIFE_S = 16.0


class KilledLoaders:
    """A thread that begins and kills loaders over a way's log and history until the block ends.

    Until one of them has written, each may live twice as long as the one before: on a busy machine a loader needs
    seconds to join its group.
    """

    def __init__(self, way: Way, rng: random.Random, *, life_s_max: float) -> None:
        self._way = way
        self._rng = rng
        self._life_s_max = life_s_max
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loader-killer")
        self._error: BaseException | None = None
        self.kills = 0
        self.written = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive(), "a killed loader does not end"
        if self._error is not None:
            raise self._error

    def wait_written(self) -> None:
        """Wait until one of them has written."""
        self._wait(lambda: self.written > 0)

    def wait_kill(self, kills: int) -> None:
        """Wait until there were more than `kills` kills."""
        self._wait(lambda: self.kills > kills)

    def _wait(self, condition: Callable[[], bool]) -> None:
        wait_until(lambda: condition() or self._error is not None, WITHIN_S)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._one()
        except BaseException as error:
            self._error = error

    def _one(self) -> None:
        lifeline = Lifeline()
        store = MortalStore(self._way.history, lifeline, lambda count: None)
        # A killed loader must not reach Kafka or Cassandra any more: leaving the group would look like a clean end.
        mortal_log: Any = MortalLog(self._way.log, lifeline)
        mortal_store: Any = store
        options = LoaderOptions(self._way.times, commit_interval_s=0.05)
        loader = Loader(mortal_log, mortal_store, options, self._way.clock, seed=1)
        loader.start()
        self._stopping.wait(self._rng.random() * self._life_s_max)  # The instant.
        lifeline.cut()
        if (failure := loader.failure()) is not None:
            raise failure
        loader.close()
        loader.abort()
        self.kills += 1
        self.written += store.written
        if not self.written:
            self._life_s_max = min(2 * self._life_s_max, LONGEST_LIFE_S)
