"""Index generation as a querier sees it: read from `meta` when history is read, at most twice a second.

Reads that memory answers alone never need it. While the log does not answer, the generation is unknown. History's index
is then read again for each answer, and answers from memory stay exact.
"""

from __future__ import annotations

import threading

from tsdb.log.index_generation import BEFORE_THE_FIRST, POLL_EVERY_S, last_generation
from tsdb.log.interface import META, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

AGAIN_S = 10.0  # After a failed request, which took the log's timeout.

log = get_logger(__name__)

polls_total = counter("tsdb_query_index_generation_looks_total", "Reads of the index generation from `meta`.")
poll_failures_total = counter(
    "tsdb_query_index_generation_look_failures_total",
    "Failed reads of the index generation from `meta`; until one succeeds, answers do not use the cached series index.",
)


class IndexGeneration:
    """Index generation of one log. Thread-safe. While the log does not answer, one caller at a time waits for it."""

    def __init__(self, log_: Log, topic_id: str, clock: Clock) -> None:
        self._log = log_
        self._topic_id = topic_id
        self._clock = clock
        self._lock = threading.Lock()  # Guards all below. Held during a request to the log.
        self._generation: int | None = None
        self._high: int | None = None  # High watermark of `meta` at the last read; None: the generation is not known.
        self._polled_at: float | None = None
        self._failed = False

    def now(self) -> int | None:
        """The generation, at most POLL_EVERY_S old; None: not known."""
        called_at = self._clock.monotonic()
        if not self._lock.acquire(blocking=not self._failed):
            return None
        try:
            if self._is_due(called_at):
                self._polled_at = self._clock.monotonic()
                self._poll()
            return self._generation
        finally:
            self._lock.release()

    def _is_due(self, called_at: float) -> bool:
        every_s = AGAIN_S if self._failed else POLL_EVERY_S
        return self._polled_at is None or called_at - self._polled_at >= every_s

    def _poll(self) -> None:
        polls_total.inc()
        try:
            high = self._log.watermarks(META, [0])[0].high
            if self._high is None or high < self._high:
                self._generation = last_generation(self._log, self._topic_id) or BEFORE_THE_FIRST
            elif high > self._high:
                self._generation = last_generation(self._log, self._topic_id, self._high) or self._generation
            self._high, self._failed = high, False
        except TsdbError as error:
            self._generation, self._high, self._failed = None, None, True
            poll_failures_total.inc()
            log.warning("index generation not known", reason=error.reason, error=error.message)
