"""Sources: stores and history of a querier, and the part of a request for each store that shares it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tsdb.answer.answer import Answer
from tsdb.answer.spec import (
    ExemplarsSpec,
    LabelsSpec,
    ReadOptions,
    SelectSpec,
    SeriesSpec,
    highest_offsets,
    partitions_of,
)
from tsdb.history.interface import HistoryReads
from tsdb.model.errors import HoleInRange, OutOfCoverage
from tsdb.ops.grpc.slots import waiting
from tsdb.ops.metrics import adder, counter
from tsdb.query.history.downsampled import Resolutions
from tsdb.query.history.index import HistoryIndex
from tsdb.query.stores.interface import InProcessStore, Stores
from tsdb.query.stores.routing import Share
from tsdb.reader.read_call import ReadCall
from tsdb.v1 import reader_pb2

Spec = TypeVar("Spec", SelectSpec, SeriesSpec, LabelsSpec, ExemplarsSpec)
Result = TypeVar("Result")

answered_total = counter(
    "tsdb_query_partitions_answered_total",
    "Partitions in Select answers, by the source of their samples; memory: it reached the start.",
    "source",
    ("memory", "history", "both"),
)
add_from_memory = adder(answered_total.labels("memory"))


@dataclass(frozen=True, slots=True)
class HistorySource:
    """History for a querier. window_ms: window of the common time set. resolutions: None when derived series do not
    exist.
    """

    store: HistoryReads
    index: HistoryIndex
    window_ms: int
    resolutions: Resolutions | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of a querier. topic_id, partitions (ascending): those of the log, so that a missing store is noticed.
    history: None without a configured history.

    chunk_stage: the last known state of the chunk stage; None: not known. experiment: its name; empty: production.
    log_address, history_address: as configured, for messages. memory: the store of this process, when it is the only
    one and has all partitions: then it answers a read alone where its memory suffices.

    """

    stores: Stores
    topic_id: str
    partitions: Sequence[int]
    history: HistorySource | None
    chunk_stage: Callable[[], reader_pb2.ChunkStageState | None] = lambda: None
    experiment: str = ""
    log_address: str = ""
    history_address: str = ""
    memory: InProcessStore | None = field(init=False)

    def __post_init__(self) -> None:
        memory = self.stores.in_process
        if memory is not None and (memory.topic_id != self.topic_id or set(memory.partitions) != set(self.partitions)):
            memory = None
        object.__setattr__(self, "memory", memory)

    def from_memory(self, spec: Spec, read: Callable[[InProcessStore], Result]) -> Result | None:
        """The answer of the store of this process, when it is the only one and has what the spec needs.

        None: the read waits for records or is of some partitions, or history has the rest and knows which holes are
        accepted. Raises the errors of the store.
        """
        options = spec.options
        if self.memory is None or options.after or options.partitions:
            return None
        try:
            return read(self.memory)
        except (OutOfCoverage, HoleInRange):
            if self.history is None:
                raise
            return None

    def select(self, spec: SelectSpec, call: ReadCall) -> Answer | None:
        """The answer `from_memory` to a select. The memory that it takes counts as that of the call."""
        answer = self.from_memory(spec, lambda memory: memory.select(spec, call))
        if answer is not None:
            add_from_memory(len(self.partitions))
        return answer


def partitions_for(sources: Sources, options: ReadOptions) -> list[int]:
    """The partitions to answer for, ascending. Checks the tokens of `after`; the stores wait for them.

    Raises InvalidRequest (bad_partition, bad_token), WrongTopic.
    """
    highest_offsets(options.after, sources.topic_id, sources.partitions)
    return partitions_of(options.partitions, sources.partitions)


def spec_for(spec: Spec, share: Share) -> Spec:
    """The spec for one share: its partitions, and only their tokens."""
    options = spec.options
    after = [token for token in options.after if token.partition in share.partitions] if options.after else ()
    return replace(spec, options=replace(options, partitions=share.partitions, after=after))


def joined_warnings(warnings: Iterable[Sequence[str]]) -> list[str]:
    """The warnings of several stores' answers. A partition that was read twice warns once."""
    return list(dict.fromkeys([text for texts in warnings for text in texts]))


@contextmanager
def stores_answering(options: ReadOptions, call: ReadCall) -> Iterator[None]:
    """Context for waiting for the stores' first messages. A store may itself wait for the records of `after`, so then
    the call counts as waiting. Raises Unavailable (draining)."""
    if options.after:
        with waiting(), call.waiting():
            yield
    else:
        yield
