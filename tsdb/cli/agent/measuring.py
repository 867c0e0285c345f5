"""Measuring: the sources of an agent, each on a separate thread, so that a slow or hanging source delays no other.

The threads are daemons: a source that never returns cannot prevent the end of the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tsdb.cli.agent.sample import Measured, SampleSource
from tsdb.ops.threads import new_thread

CLOSE_WAIT_S = 0.2  # Time for idle threads to end. Threads of hanging sources are abandoned.


class Measuring:
    """Runs the sources. A context manager for one thread."""

    def __init__(self, sources: Sequence[SampleSource]) -> None:
        # Guards the fields of the workers; an innermost lock.
        self._changed = threading.Condition()
        self._workers = [_Worker(source, self._changed) for source in sources]

    def begin_round(self, now_ms: int) -> list[Measured]:
        """Begin a round. Returns the `missed` samples of sources that are still busy with an earlier round."""
        with self._changed:
            busy = [worker for worker in self._workers if worker.round_ms is not None]
            for worker in self._workers:
                if worker.round_ms is None:
                    worker.round_ms = now_ms
            self._changed.notify_all()
        return [sample for worker in busy for sample in worker.source.missed(now_ms)]

    @property
    def busy(self) -> bool:
        """Whether a source is still measuring."""
        with self._changed:
            return any(worker.round_ms is not None for worker in self._workers)

    def take(self, timeout_s: float) -> list[Measured]:
        """Wait until every source is done, at most timeout_s. Returns the samples measured since the last call.

        Raises the exception of a failed source.
        """
        with self._changed:
            self._changed.wait_for(lambda: all(worker.round_ms is None for worker in self._workers), timeout_s)
            taken: list[Measured] = []
            for worker in self._workers:
                if worker.failure is not None:
                    raise worker.failure
                taken += worker.found
                worker.found = []
        return taken

    def __enter__(self) -> Self:
        for worker in self._workers:
            worker.thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            for worker in self._workers:
                worker.closing = True
            self._changed.notify_all()
        give_up_at = time.monotonic() + CLOSE_WAIT_S
        for worker in self._workers:
            worker.thread.join(max(0.0, give_up_at - time.monotonic()))


class _Worker:
    """One source and its thread. round_ms: time of the source's current round; None while it is idle."""

    def __init__(self, source: SampleSource, changed: threading.Condition) -> None:
        self.source = source
        self.round_ms: int | None = None
        self.found: list[Measured] = []
        self.failure: BaseException | None = None
        self.closing = False
        self._changed = changed
        self.thread = new_thread(self._run, "agent-source")

    def _run(self) -> None:
        while (now_ms := self._next()) is not None:
            found: list[Measured] = []
            failure: BaseException | None = None
            try:
                found = self.source.measure(now_ms)
            except BaseException as error:
                failure = error
            with self._changed:
                self.found += found
                self.failure = failure
                self.round_ms = None
                self._changed.notify_all()

    def _next(self) -> int | None:
        with self._changed:
            self._changed.wait_for(lambda: self.closing or self.round_ms is not None)
            return None if self.closing else self.round_ms
