"""Selects over stores and history. The answer is exact or an error, wherever the samples are.

Memory comes first. A store of the same process answers alone where its memory suffices. Otherwise, for a partition
whose memory reaches the start, the store's answer is passed on unchanged. For other partitions a store gives its
samples, with the orders of samples below coverage, and history gives everything before coverage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tsdb.answer.answer import Answer, PartitionAnswer
from tsdb.answer.spec import SelectSpec
from tsdb.answer.state import MemoryState
from tsdb.model.errors import OutOfCoverage, TsdbError
from tsdb.query.join.completeness import AcceptedHoles
from tsdb.query.join.joined_read import AnswerTotals, JoinedRead, StepSplit, alone_parts, combined
from tsdb.query.sources import Sources, add_from_memory, joined_warnings, spec_for, stores_answering
from tsdb.query.stores.fan_out import ShareStreams, open_all
from tsdb.query.stores.routing import Routing, Share
from tsdb.reader.read_call import Caller, ReadCall, SelectLimits


@dataclass(frozen=True, slots=True)
class OpenedSelect:
    """Sources that together answer a Select. All refusals are known by now; a later failure raises from the iterators.

    alone: stores whose answers are whole. joined: partitions of other stores, ascending by store, joined with history
    when they are read. states: the states of all partitions, with the holes of history. totals: the totals of the
    answer; reading the joined partitions adds to it, and the counts of `alone` are for the caller to add. warnings: the
    warnings of all stores.
    """

    alone: list[ShareStreams[Answer]]
    joined: list[Iterator[PartitionAnswer]]
    states: list[MemoryState]
    totals: AnswerTotals
    warnings: list[str]


class SelectRead:
    """One Select over several sources. Not thread-safe: it runs on the caller's thread. limits: the limits of the whole
    answer, and those of the spec; each store applies them to its part too.
    """

    def __init__(self, sources: Sources, spec: SelectSpec, limits: SelectLimits, caller: ReadCall) -> None:
        self._sources = sources
        self._spec = spec
        self._limits = limits
        self._caller = caller
        self._unsplit: set[int] = set()
        # A partial answer comes from memory only, because the caller itself joins it with history.
        self._has_history = sources.history is not None and not spec.partial
        self._routing = Routing(sources.stores, sources.topic_id, spec.start_ms, history=self._has_history)
        history = None if sources.history is None else sources.history.store
        allow_holes = spec.options.allow_holes
        self._accepted = AcceptedHoles(history, spec.start_ms, spec.end_ms, allow_holes=allow_holes)

    def answers(self, partitions: Sequence[int]) -> Iterator[Answer]:
        """The answers. Raises the errors of stores and history, Unavailable (history_behind) and DATA_LOSS errors."""
        alone = self._sources.select(self._spec, self._caller)
        if alone is not None:
            yield alone
            return
        opened = self.open(partitions)
        if len(opened.alone) == 1 and not opened.joined:
            yield from opened.alone[0].messages()
            return
        sources: list[Iterator[PartitionAnswer]] = [alone_parts(one.messages(), opened.totals) for one in opened.alone]
        yield from combined(opened.states, opened.warnings, [*sources, *opened.joined], opened.totals)

    def open(self, partitions: Sequence[int], *, keeps: bool = False) -> OpenedSelect:
        """Begin to read. Raises as `answers`. keeps: the caller keeps all joined partitions until the end of the read,
        so that the memory of each counts until then."""
        with stores_answering(self._spec.options, self._caller):
            opened = open_all(self._routing, partitions, self._start, self._caller, self._handle_refusal)
        alone, others, warnings = [], [], []
        states: list[MemoryState] = []  # Of stores that answer alone.
        all_states: list[MemoryState] = []
        partitions_alone = 0
        for one in opened:
            for answer in one.first:
                all_states += answer.states or ()
                warnings.append(answer.warnings)
            if one.share.alone:
                alone.append(one)
                states += one.first[0].states or ()
                partitions_alone += len(one.share.partitions)
            else:
                others.append(one)
        self._accepted.check(all_states)
        add_from_memory(partitions_alone)
        totals = AnswerTotals(self._limits)
        joined: list[Iterator[PartitionAnswer]] = []
        if others:
            assert self._sources.history is not None, "only a querier with a history joins"
            read = JoinedRead(self._sources.history, self._spec, totals, self._caller, keeps=keeps)
            joined_states, joined = read.open(others)
            states += joined_states
        return OpenedSelect(alone, joined, states, totals, joined_warnings(warnings))

    def _start(self, share: Share, caller: Caller) -> Sequence[Iterator[Answer]]:
        spec = self._accepted.apply(spec_for(self._spec, share), share)
        if share.alone:
            return [share.store.select(spec, caller)]
        split = self._split(share)
        return [share.store.select(part, caller) for part in split.specs(spec)]

    def _split(self, share: Share) -> StepSplit:
        if not self._unsplit.isdisjoint(share.partitions):
            return StepSplit(None)
        return StepSplit.of(self._spec, [self._routing.state(share, partition) for partition in share.partitions])

    def _handle_refusal(self, share: Share, error: TsdbError) -> bool:
        """Whether to send the request to the same store again."""
        if self._accepted.handle_refusal(share, error):
            return True
        if share.alone or not isinstance(error, OutOfCoverage):
            return False
        # Coverage moved past the split of the share's steps, so the next request is for all samples, without a split.
        self._unsplit.update(share.partitions)
        return True
