"""Labels over stores and history: finds label names, or the values of one label, of all matching series."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tsdb.answer.answer import LabelsAnswer
from tsdb.answer.spec import LabelsSpec
from tsdb.answer.state import MemoryState
from tsdb.model.labels import parse_labels
from tsdb.query.history.index import Choice
from tsdb.query.join.completeness import AcceptedHoles, history_series
from tsdb.query.sources import Sources, joined_warnings, partitions_for, spec_for, stores_answering
from tsdb.query.stores.fan_out import open_all
from tsdb.query.stores.routing import NO_START_MS, Routing, Share
from tsdb.reader.read_call import Caller, ReadCall, check_values


def read_labels(sources: Sources, spec: LabelsSpec, call: ReadCall) -> LabelsAnswer:
    """The label names or values of a checked spec, from the memory of this process where it suffices.

    Raises as Select, and Overloaded (values_limit).
    """
    answer = sources.from_memory(spec, lambda memory: memory.labels(spec, call))
    return answer or LabelsRead(sources, spec, call).answer(partitions_for(sources, spec.options))


class LabelsRead:
    """One read of labels over stores and history. Not thread-safe: it runs on the caller's thread."""

    def __init__(self, sources: Sources, spec: LabelsSpec, caller: ReadCall) -> None:
        self._sources = sources
        self._spec = spec
        self._caller = caller
        self._start_ms = NO_START_MS if spec.start_ms is None else spec.start_ms
        history = None if sources.history is None else sources.history.store
        allow_holes = spec.options.allow_holes
        self._accepted = AcceptedHoles(history, self._start_ms, spec.needed_end_ms, allow_holes=allow_holes)

    def answer(self, partitions: Sequence[int]) -> LabelsAnswer:
        sources, spec = self._sources, self._spec
        history = sources.history is not None and spec.start_ms is not None
        routing = Routing(sources.stores, sources.topic_id, self._start_ms, history=history)
        with stores_answering(spec.options, self._caller):
            opened = open_all(routing, partitions, self._start, self._caller, self._accepted.handle_refusal)
        answers = [one.first[0] for one in opened]
        states = {state.partition: state for answer in answers for state in answer.states}
        self._accepted.check(states.values())
        joined = [state.partition for one in opened if not one.share.alone for state in one.first[0].states]
        found = {text for answer in answers for text in answer.texts}
        if joined:
            found.update(self._history_texts(joined, states))
        check_values(spec, len(found))
        warnings = joined_warnings([answer.warnings for answer in answers])
        return LabelsAnswer([states[partition] for partition in sorted(states)], warnings, found)

    def _start(self, share: Share, caller: Caller) -> Sequence[Iterator[LabelsAnswer]]:
        """Ask the store. Where history is added, the spec has no start, so that memory gives all that it holds."""
        spec = self._accepted.apply(spec_for(self._spec, share), share)
        return [share.store.labels(spec if share.alone else replace(spec, start_ms=None), caller)]

    def _history_texts(self, joined: Sequence[int], states: dict[int, MemoryState]) -> Iterator[str]:
        """The texts of history for these partitions. Adds the holes of history to `states`."""
        spec = self._spec
        assert self._sources.history is not None, "only a querier with a history joins"
        assert spec.start_ms is not None, "only a read with a start joins"
        mine = {partition: states[partition] for partition in joined}
        found = history_series(
            self._sources.history,
            mine,
            Choice(spec.matchers),
            spec.start_ms,
            spec.needed_end_ms,
            allow_holes=spec.options.allow_holes,
            check_going=self._caller.check_going,
        )
        states.update(mine)
        for canonical in (labels for series in found.values() for labels in series.labels):
            for name, value in parse_labels(canonical):
                if spec.name is None:
                    yield name
                elif name == spec.name and value:
                    yield value
