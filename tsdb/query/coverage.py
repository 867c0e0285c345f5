"""Coverage over stores and history: per partition the state of the best store, and how far history reaches."""

from __future__ import annotations

from tsdb.history.interface import Loaded
from tsdb.query.sources import Sources
from tsdb.query.stores.routing import best_states
from tsdb.reader.read_call import Caller
from tsdb.v1 import common_pb2, reader_pb2

REFRESH_S = 2.0  # A store that does not answer within this time is left out.
ANSWER_SHARE = 0.8  # Part of the caller's time left that the stores may use.


def coverage(sources: Sources, caller: Caller) -> reader_pb2.CoverageResponse:
    """Coverage now. Partitions without an answering store are missing. Raises as history does."""
    left_s = caller.time_remaining()
    sources.stores.refresh(REFRESH_S if left_s is None else min(REFRESH_S, left_s * ANSWER_SHARE))
    answer = reader_pb2.CoverageResponse(partitions=best_states(sources.stores, sources.topic_id, sources.partitions))
    if sources.history is None:
        return answer
    chunk_stage = sources.chunk_stage()
    if chunk_stage is not None:
        answer.chunk_stage.CopyFrom(chunk_stage)
    states = {state.partition: state for state in answer.partitions}
    for partition, loaded in sorted(sources.history.store.loaded(sources.topic_id).items()):
        state = states.get(partition)
        answer.history.add(
            partition=partition,
            topic_id=loaded.topic_id,
            position=loaded.position,
            emitted_through_ms=loaded.emitted_through_ms,
            reaches_memory=state is not None and reaches_memory(state, loaded),
        )
    return answer


def reaches_memory(state: common_pb2.PartitionState, loaded: Loaded | None) -> bool:
    """Whether memory, together with history as far as it is loaded, answers any range of the partition."""
    if state.from_start:
        return True
    return loaded is not None and (
        loaded.position >= state.since_offset and loaded.emitted_through_ms >= state.coverage_start_ms
    )
