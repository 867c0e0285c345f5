"""Local store: the store of this process. Its answers are arrays, handed over on the thread of the read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tsdb.answer.answer import Answer, ExemplarsAnswer, LabelsAnswer, SeriesAnswer, WatchAnswer
from tsdb.answer.spec import ExemplarsSpec, LabelsSpec, SelectSpec, SeriesSpec, WatchSpec
from tsdb.answer.state import MemoryState
from tsdb.model.clock import Clock
from tsdb.reader.cardinality import cardinality_spec, counted
from tsdb.reader.read_call import Caller, ReadCall, ReadCalls
from tsdb.store.reads import StoreReads
from tsdb.v1 import reader_pb2
from tsdb.wire.state import decode_options

STATES_AGE_S = 0.1  # States only choose the route. A store that has changed since refuses, and routing chooses again.


class LocalStore:
    """A StoreReader over the reads of a store. Thread-safe. calls: the calls of the watches."""

    name = "local"
    apart = False
    may_be_silent = False
    is_suspect = False

    def __init__(self, reads: StoreReads, clock: Clock, calls: ReadCalls | None = None) -> None:
        self.reads = reads
        self._clock = clock
        self._calls = calls or ReadCalls()
        self._states: tuple[float, Mapping[int, MemoryState]] | None = None  # Replaced as a whole.

    def states(self) -> Mapping[int, MemoryState]:
        known = self._states
        if known is None or self._clock.monotonic() - known[0] > STATES_AGE_S:
            known = self._look(sizes=False)
        return known[1]

    def suspect(self) -> None:
        raise AssertionError("a store of this process is not hedged")

    def refresh(self, timeout_s: float) -> None:
        # Coverage states the sizes of partitions. They are summed over all series tables, which routing need not pay.
        self._look(sizes=True)

    def _look(self, *, sizes: bool) -> tuple[float, Mapping[int, MemoryState]]:
        states = {state.partition: state for state in self.reads.states(sizes=sizes)}
        self._states = found = self._clock.monotonic(), states
        return found

    def select(self, spec: SelectSpec, caller: Caller) -> Iterator[Answer]:
        call = _call(caller)
        with call.part() as work:
            yield self.reads.select(spec, call, work)

    def series(self, spec: SeriesSpec, caller: Caller) -> Iterator[SeriesAnswer]:
        call = _call(caller)
        with call.part() as work:
            yield from self.reads.series(spec, call, work)

    def labels(self, spec: LabelsSpec, caller: Caller) -> Iterator[LabelsAnswer]:
        call = _call(caller)
        with call.part() as work:
            yield self.reads.labels(spec, call, work)

    def exemplars(self, spec: ExemplarsSpec, caller: Caller) -> Iterator[ExemplarsAnswer]:
        call = _call(caller)
        with call.part() as work:
            yield from self.reads.exemplars(spec, call, work)

    def cardinality(
        self, request: reader_pb2.CardinalityRequest, caller: Caller
    ) -> Iterator[reader_pb2.CardinalityResponse]:
        query, call = cardinality_spec(request), _call(caller)
        with call.part() as work:
            reads = self.reads.label_reads(decode_options(request.options), call)
            yield counted(reads, query, self.reads.placement_labels, work)

    def watch(self, spec: WatchSpec, caller: Caller) -> Iterator[WatchAnswer]:
        return self.reads.watch(spec, caller, self._calls)


class OneStore:
    """The Stores of a process with one local store."""

    def __init__(self, store: LocalStore) -> None:
        self._all = (store,)
        self.in_process = store.reads

    def all(self) -> Sequence[LocalStore]:
        return self._all

    def refresh(self, timeout_s: float) -> None:
        for store in self._all:
            store.refresh(timeout_s)

    def away(self) -> Sequence[tuple[str, str]]:
        return ()


def _call(caller: Caller) -> ReadCall:
    assert isinstance(caller, ReadCall), "a store of this process is not hedged, so its caller is the read itself"
    return caller
