"""Completeness: whether memory and history together hold all of a range, without a hole that is not accepted.

Memory has the log from since_offset on. History has every sample below offset X (the loaded position) whose time is
before emitted_through. So they meet when X >= since_offset, and history is complete before the seam when
emitted_through reaches the seam. Stores find the same holes in the log at every replay, also those that were accepted
in history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tsdb.answer.state import MemoryState, hole_error
from tsdb.history.interface import HistoryReads, Loaded
from tsdb.index.pair_search import CheckGoing
from tsdb.model.errors import HoleInRange, TsdbError, Unavailable
from tsdb.query.history.holes import HistoryHoles
from tsdb.query.history.index import Choice, HistorySeries
from tsdb.query.sources import HistorySource, Spec
from tsdb.query.stores.routing import Share

RETRY_AFTER_S = 1.0


class AcceptedHoles:
    """Hole checks of one read over [start_ms, end_ms). history: None without one; then no hole is accepted.

    A store does not know which holes are accepted, so it refuses. The querier then repeats the request with allow_holes
    and checks the holes of the answer itself, against those accepted in history.
    """

    def __init__(self, history: HistoryReads | None, start_ms: int, end_ms: int, *, allow_holes: bool) -> None:
        self._history = None if allow_holes else history
        self._range = start_ms, end_ms
        self._checked_here: set[int] = set()

    def handle_refusal(self, share: Share, error: TsdbError) -> bool:
        """Whether to repeat the request to the same store with allow_holes, and check the holes of its answer here."""
        if (
            self._history is None
            or not isinstance(error, HoleInRange)
            or not self._checked_here.isdisjoint(share.partitions)
        ):
            return False
        self._checked_here.update(share.partitions)
        return True

    def apply(self, spec: Spec, share: Share) -> Spec:
        """The spec with allow_holes where the holes of a share are checked here."""
        if self._checked_here.isdisjoint(share.partitions):
            return spec
        return replace(spec, options=replace(spec.options, allow_holes=True))

    def check(self, states: Iterable[MemoryState]) -> None:
        """Raises HoleInRange for a hole that is not accepted, in an answer that was requested with allow_holes here."""
        if self._checked_here and self._history is not None:
            checked = [state for state in states if state.partition in self._checked_here]
            check_memory_holes(self._history, checked, *self._range)


def check_memory_holes(history: HistoryReads, states: Iterable[MemoryState], start_ms: int, end_ms: int) -> None:
    """Raises HoleInRange naming the first hole of memory in [start_ms, end_ms) that is not accepted."""
    touching = [hole for state in states for hole in state.holes_in(start_ms, end_ms)]
    if not touching:
        return
    known = history.holes({hole.partition for hole in touching}, start_ms, end_ms)
    # Stores and the chunk stage name the same loss with the same fields.
    accepted = {one.hole for one in known if one.accepted}
    for hole in touching:
        if hole not in accepted:
            raise hole_error(hole)


def seam_ms(state: MemoryState, end_ms: int) -> int:
    """The seam: history answers before this time, memory from it on."""
    return min(state.coverage_start_ms, end_ms)


def check_complete(state: MemoryState, loaded: Mapping[int, Loaded], seam: int) -> None:
    """Raises Unavailable (history_behind) naming the partition and the four numbers, unless history is complete before
    `seam`.

    loaded: read before any chunk. seam: see seam_ms.

    """
    _check(state, loaded.get(state.partition), seam)


def check_series_complete(state: MemoryState, loaded: Mapping[int, Loaded]) -> None:
    """As check_complete, for the series index alone: series announced below a position are in history before that
    position is loaded, so emitted_through does not matter."""
    _check(state, loaded.get(state.partition), None)


def _check(state: MemoryState, loaded: Loaded | None, needed_ms: int | None) -> None:
    if loaded is not None and loaded.topic_id != state.topic_id:
        loaded = None  # The value is from another incarnation of the log, so its offsets have no meaning here.
    joined = loaded is not None and loaded.position >= state.since_offset
    if loaded is not None and joined and (needed_ms is None or loaded.emitted_through_ms >= needed_ms):
        return
    position = "none" if loaded is None else loaded.position
    emitted_ms = "none" if loaded is None else loaded.emitted_through_ms
    raise Unavailable(
        f"history of partition {state.partition} does not reach memory yet: loaded up to offset {position}, memory"
        f" begins at offset {state.since_offset}; windows emitted through {emitted_ms} ms, needed through"
        f" {needed_ms} ms",
        reason="history_behind",
        retry_after_s=RETRY_AFTER_S,
        partition=state.partition,
        loaded_position=position,
        since_offset=state.since_offset,
        emitted_through_ms=emitted_ms,
        needed_through_ms=needed_ms,
    )


def history_series(
    history: HistorySource,
    states: dict[int, MemoryState],
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
    wanted = {partition: state for partition, state in states.items() if not state.reaches(start_ms)}
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
    holes.list_in(states)
    needs = {partition: state.since_offset for partition, state in wanted.items()}
    return history.index.find(choice, start_ms, max(seams.values()), loaded, needs, check_going)
