"""Exemplars over stores: those of matching series, from the memory of the stores that answer for the partitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tsdb.answer.answer import ExemplarsAnswer
from tsdb.answer.spec import ExemplarsSpec
from tsdb.query.sources import Sources, joined_warnings, spec_for, stores_answering
from tsdb.query.stores.fan_out import open_all
from tsdb.query.stores.routing import NO_START_MS, Routing, Share
from tsdb.reader.read_call import Caller, ReadCall


def read_exemplars(
    sources: Sources, spec: ExemplarsSpec, partitions: Sequence[int], call: ReadCall
) -> Iterator[ExemplarsAnswer]:
    """States, then the exemplars of the partitions, by partition. Raises Unavailable as Select for a partition without
    a store that answers, or too far behind."""

    def start(share: Share, caller: Caller) -> Sequence[Iterator[ExemplarsAnswer]]:
        return [share.store.exemplars(spec_for(spec, share), caller)]

    routing = Routing(sources.stores, sources.topic_id, NO_START_MS, history=False)
    with stores_answering(spec.options, call):
        opened = open_all(routing, partitions, start, call)
    states = {state.partition: state for one in opened for state in one.first[0].states or ()}
    warnings = joined_warnings([one.first[0].warnings for one in opened])
    yield ExemplarsAnswer([states[partition] for partition in sorted(states)], warnings)
    for one in opened:
        for part in one.rest[0]:
            call.check_going()
            yield part
