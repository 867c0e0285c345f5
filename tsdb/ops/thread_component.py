"""Thread component: start, close, join and failure of a part of a process that works on one thread."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from tsdb.ops.logs import get_logger

log = get_logger(__name__)


class ThreadComponent(ABC):
    """A component with one daemon thread. Implements Component and Fallible.

    A subclass implements `_run`, which works until `_closing` is set. An exception from `_run` ends the thread. It is
    logged and stored, and the process ends with it (`failure`): otherwise readiness would go on showing an old state.
    """

    def __init__(self, name: str) -> None:
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run_guarded, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread. A component starts at most once."""
        self._thread.start()

    def close(self) -> None:
        """Let the thread end after its current step. Returns at once; callable before `start` and more than once."""
        self._closing.set()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread. False when it still runs after the timeout; True when it never started."""
        if self._thread.ident is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def abort(self) -> None:  # noqa: B027  An override is optional.
        """Drop work. No effect without an override: most components have no work to drop."""

    def failure(self) -> BaseException | None:
        """The exception that ended the thread; None while it works, and after `close`."""
        return self._error

    @abstractmethod
    def _run(self) -> None:
        """Work on the thread until `_closing` is set."""

    def _run_guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            log.error("thread failed", thread=self._thread.name, error=str(error), exc_info=True)
            self._error = error
