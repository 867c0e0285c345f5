"""Coverage over stores and history: of each partition what the best store holds, and how far history reaches."""

from __future__ import annotations

from tsdb.query.routing import best_states
from tsdb.query.sources import Sources
from tsdb.store.read_call import Caller
from tsdb.v1 import reader_pb2

REFRESH_S = 2.0  # A store that does not answer within it is left out.
ANSWER_SHARE = 0.8  # Of the caller's time, for the stores.


def coverage(sources: Sources, caller: Caller) -> reader_pb2.CoverageResponse:
    """As of now. Partitions that no store answers for are missing. Raises as history does."""
    left_s = caller.time_remaining()
    sources.stores.refresh(REFRESH_S if left_s is None else min(REFRESH_S, left_s * ANSWER_SHARE))
    answer = reader_pb2.CoverageResponse(partitions=best_states(sources.stores, sources.topic_id, sources.partitions))
    if sources.past is None:
        return answer
    states = {state.partition: state for state in answer.partitions}
    for partition, loaded in sorted(sources.past.store.loaded(sources.topic_id).items()):
        state = states.get(partition)
        joined = state is not None and (
            loaded.position >= state.since_offset and loaded.emitted_through_ms >= state.coverage_start_ms
        )
        answer.history.add(
            partition=partition,
            topic_id=loaded.topic_id,
            position=loaded.position,
            emitted_through_ms=loaded.emitted_through_ms,
            reaches_memory=joined or (state is not None and state.from_start),
        )
    return answer
