"""A store and a querier of an experiment show their partitions as those of the experiment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.servers.queriers import TOPIC_ID, context
from support.servers.seams import Seam
from tsdb.query.service import QuerierService
from tsdb.reader.read_call import SelectLimits
from tsdb.store.reads import StoreReads
from tsdb.store.service import ReaderService
from tsdb.v1 import reader_pb2
from tsdb.wire.state import coverage_states


@pytest.fixture(scope="module")
def seam() -> Seam:
    return Seam()


@pytest.mark.parametrize("experiment", ["", "trial"])
def test_the_partitions_are_where_readers_of_the_same_experiment_look(seam: Seam, experiment: str) -> None:
    reads = StoreReads(TOPIC_ID, seam.served.partitions, seam.served.applied, SelectLimits())
    store = ReaderService(reads, experiment=experiment)
    querier = QuerierService(replace(seam.sources, experiment=experiment), SelectLimits())
    for service in (store, querier):
        answer = service.Coverage(reader_pb2.CoverageRequest(), context())
        assert answer.HasField("experiment") == bool(experiment)
        assert answer.experiment.name == experiment
        assert [state.partition for state in answer.partitions] == ([] if experiment else [0])
        assert [state.partition for state in coverage_states(answer)] == [0]
    assert len(querier.Coverage(reader_pb2.CoverageRequest(), context()).history) == 1
