"""Seam watch: how far history reaches beyond the start of memory, as metrics, while nobody reads across the seam.

A read of a range older than memory is answered while history reaches memory. The margin is the sample time that memory
may still drop before such reads are refused.
"""

from __future__ import annotations

from tsdb.answer.state import MemoryState
from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge
from tsdb.ops.periodic import Periodic
from tsdb.query.coverage import reaches_memory
from tsdb.query.sources import HistorySource, Sources
from tsdb.query.stores.routing import best_states

EVERY_S = 10.0

log = get_logger(__name__)

margin = gauge(
    "tsdb_query_seam_margin_seconds",
    "Sample time from the start of memory to the end of what history has; below 0 reads of older ranges are refused. "
    "Absent while memory has the whole log.",
    label="partition",
)
joined = gauge(
    "tsdb_query_seam_joined",
    "1 when memory and history together answer any range, 0 when ranges older than memory are refused.",
    label="partition",
)
loaded_through = gauge(
    "tsdb_query_history_loaded_through_timestamp_seconds",
    "History has the windows that end by this sample time.",
    label="partition",
)
looks_total = counter("tsdb_query_seam_looks_total", "Looks at the progress of history.")
look_failures_total = counter(
    "tsdb_query_seam_look_failures_total", "Looks that failed, by reason; values stay as they were.", "reason"
)


class SeamWatch(Periodic):
    """Owns one thread, which asks history for its progress every EVERY_S seconds."""

    def __init__(self, sources: Sources, history: HistorySource) -> None:
        super().__init__("seam-watch", EVERY_S, self.look)
        self._sources = sources
        self._history = history

    def look(self) -> None:
        """Look once and set the metrics. A partition without an answering store keeps its values."""
        looks_total.inc()
        try:
            loaded = self._history.store.loaded(self._sources.topic_id)
        except TsdbError as error:
            look_failures_total.labels(error.reason).inc()
            log.debug("progress of history not seen", reason=error.reason, error=error.message)
            return
        for state in best_states(self._sources.stores, self._sources.topic_id, self._sources.partitions):
            progress = loaded.get(state.partition)
            name = str(state.partition)
            joined.labels(name).set(reaches_memory(state, progress))
            if progress is not None:
                loaded_through.labels(name).set(progress.emitted_through_ms / 1000)
            _show_margin(state, None if progress is None else progress.emitted_through_ms)


def _show_margin(state: MemoryState, through_ms: int | None) -> None:
    name = str(state.partition)
    if state.from_start or through_ms is None:
        margin.remove(name)
    else:
        margin.labels(name).set((through_ms - state.coverage_start_ms) / 1000)
