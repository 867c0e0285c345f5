"""History series: finds the series of some partitions before the start of their memory. Exact or an error, as for
samples."""

from __future__ import annotations

from collections.abc import Mapping

from tsdb.index.pair_search import CheckGoing
from tsdb.query.history.holes import HistoryHoles
from tsdb.query.history.index import Choice, HistorySeries
from tsdb.query.join.accepted_holes import check_memory_holes
from tsdb.query.join.completeness import check_series_complete, reaches, seam_ms
from tsdb.query.sources import HistorySource
from tsdb.v1 import common_pb2


def history_series(
    history: HistorySource,
    states: Mapping[int, common_pb2.PartitionState],
    choice: Choice,
    start_ms: int,
    end_ms: int,
    *,
    allow_holes: bool,
    check_going: CheckGoing,
) -> dict[int, HistorySeries]:
    """For each partition whose memory does not reach start_ms: its series in [start_ms, end_ms) before memory begins.

    The holes of history are added to `states`. check_going: called between pieces of work; it may raise. Raises
    Unavailable (history_behind), HoleInRange, and as history does.
    """
    wanted = {partition: state for partition, state in states.items() if not reaches(state, start_ms)}
    if not wanted:
        return {}
    topic_id = next(iter(wanted.values())).topic_id
    loaded = history.store.loaded(topic_id)
    for state in wanted.values():
        check_series_complete(state, loaded)
    seams = {partition: seam_ms(state, end_ms) for partition, state in wanted.items()}
    holes = HistoryHoles.read(history.store, start_ms, seams, allowed=allow_holes)
    for partition in wanted:
        holes.check(partition)
    if not allow_holes:
        # A store checks no holes for a request without a range.
        check_memory_holes(history.store, wanted.values(), start_ms, end_ms)
    holes.list_in(wanted)
    needs = {partition: state.since_offset for partition, state in wanted.items()}
    return history.index.find(choice, start_ms, max(seams.values()), loaded, needs, check_going)
