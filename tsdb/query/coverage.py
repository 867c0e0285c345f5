"""Coverage over stores and history: per partition the state of the best store, how far history reaches, and the parts
that do not answer.
"""

from __future__ import annotations

from collections.abc import Iterable

from tsdb.answer.state import MemoryState
from tsdb.history.interface import Loaded
from tsdb.model.errors import Overloaded, Unavailable
from tsdb.model.secrets import masked
from tsdb.query.sources import Sources
from tsdb.query.stores.routing import best_states
from tsdb.reader.read_call import Caller
from tsdb.v1 import reader_pb2
from tsdb.wire.state import encode_coverage

LOG_REASONS = ("high_watermark_unknown", "high_watermark_old")
LISTED_MAX = 10
NEXT_STEPS = {
    "store": "Start it, or correct the setting `stores` of the querier. Reads of its partitions go to other stores.",
    "history": "Check that it answers at this address. Reads of recent time go on from memory.",
    "log": "Check that Kafka answers at this address, and the network between. Writes are refused until then, and reads"
    " go on with what memory has.",
}
REFRESH_S = 2.0  # A store that does not answer within this time is omitted.
ANSWER_SHARE = 0.8  # Part of the caller's time left that the stores may use.


def coverage(sources: Sources, caller: Caller) -> reader_pb2.CoverageResponse:
    """The coverage now. Partitions without an answering store are missing. `away` names the parts that do not
    answer."""
    left_s = caller.time_remaining()
    sources.stores.refresh(REFRESH_S if left_s is None else min(REFRESH_S, left_s * ANSWER_SHARE))
    states = best_states(sources.stores, sources.topic_id, sources.partitions)
    answer = encode_coverage(states, sources.experiment)
    _add_away(answer, "store", sources.stores.away())
    blind = [state.partition for state in states if state.reason in LOG_REASONS]
    if blind:
        listed = ", ".join(map(str, blind[:LISTED_MAX])) + (", ..." if len(blind) > LISTED_MAX else "")
        error = f"no broker answers the stores of partition {listed}: the end of the log is not known"
        _add_away(answer, "log", [(sources.log_address, error)])
    if sources.history is None:
        return answer
    chunk_stage = sources.chunk_stage()
    if chunk_stage is not None:
        answer.chunk_stage.CopyFrom(chunk_stage)
    try:
        found = sources.history.store.loaded(sources.topic_id)
    except (Unavailable, Overloaded) as error:
        _add_away(answer, "history", [(sources.history_address, error.message)])
        return answer
    by_partition = {state.partition: state for state in states}
    for partition, loaded in sorted(found.items()):
        state = by_partition.get(partition)
        answer.history.add(
            partition=partition,
            topic_id=loaded.topic_id,
            position=loaded.position,
            emitted_through_ms=loaded.emitted_through_ms,
            reaches_memory=state is not None and reaches_memory(state, loaded),
        )
    return answer


def _add_away(answer: reader_pb2.CoverageResponse, part: str, silent: Iterable[tuple[str, str]]) -> None:
    for address, error in silent:
        answer.away.add(part=part, address=masked(address), error=masked(error), next_step=NEXT_STEPS[part])


def reaches_memory(state: MemoryState, loaded: Loaded | None) -> bool:
    """Whether memory, together with history as far as it is loaded, answers any range of the partition."""
    if state.from_start:
        return True
    return loaded is not None and (
        loaded.position >= state.since_offset and loaded.emitted_through_ms >= state.coverage_start_ms
    )
