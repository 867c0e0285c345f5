"""Coverage of an experiment: queriers of production find no partition in it, so they route no read there."""

from __future__ import annotations

from tsdb.v1 import reader_pb2


def with_experiment(answer: reader_pb2.CoverageResponse, name: str) -> reader_pb2.CoverageResponse:
    """The answer of a process of this experiment. Its states move from `partitions`; without a name it stays."""
    if not name:
        return answer
    states = list(answer.partitions)
    del answer.partitions[:]
    answer.experiment.CopyFrom(reader_pb2.Experiment(name=name, partitions=states))
    return answer
