"""Index generation as a querier sees it: read from `meta` when history is read, at most twice a second.

Reads that memory answers alone never need it. While the log does not answer, the generation is unknown. History's index
is then read again for each answer: pure history is served, and exact, without the log.
"""

from __future__ import annotations

from tsdb.log.index_generation import BEFORE_THE_FIRST, POLL_EVERY_S, last_generation
from tsdb.log.interface import META, Log
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError
from tsdb.ops.metrics import counter
from tsdb.query.log_value import WAIT_S, LogValue

AGAIN_S = 10.0  # Pause after a request that failed.

polls_total = counter("tsdb_query_index_generation_looks_total", "Reads of the index generation from `meta`.")
poll_failures_total = counter(
    "tsdb_query_index_generation_look_failures_total",
    "Reads of the index generation from `meta` that failed or took over a second; until one succeeds, answers do not "
    "use the cached series index.",
)


class IndexGeneration:
    """Index generation of one log. Thread-safe."""

    def __init__(self, log_: Log, topic_id: str, clock: Clock, *, wait_s: float = WAIT_S) -> None:
        self._log = log_
        self._topic_id = topic_id
        self._value = LogValue(
            "index-generation",
            self._read,
            clock,
            every_s=POLL_EVERY_S,
            again_s=AGAIN_S,
            failed=poll_failures_total.inc,
            wait_s=wait_s,
        )
        # Only the thread that reads uses these, one at a time.
        self._generation = BEFORE_THE_FIRST
        self._high: int | None = None  # High watermark of `meta` at the last read; None: the generation is not known.

    def now(self) -> int | None:
        """The generation, at most POLL_EVERY_S old; None: not known."""
        try:
            known = self._value.get()
        except TsdbError:
            return None
        return known.value if known.is_fresh else None

    def _read(self) -> int:
        polls_total.inc()
        before, self._high = self._high, None
        high = self._log.high_watermarks(META, [0])[0]
        if before is None or high < before:
            self._generation = last_generation(self._log, self._topic_id) or BEFORE_THE_FIRST
        elif high > before:
            self._generation = last_generation(self._log, self._topic_id, before) or self._generation
        self._high = high
        return self._generation
