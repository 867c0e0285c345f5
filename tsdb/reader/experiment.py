"""Coverage of an experiment: queriers of production find no partition in it, so they send no read there."""

from __future__ import annotations

from tsdb.v1 import reader_pb2


def with_experiment(answer: reader_pb2.CoverageResponse, name: str) -> reader_pb2.CoverageResponse:
    """Mark the answer of a process of this experiment. Its states move from `partitions` to a field for experiments;
    without a name nothing moves."""
    if not name:
        return answer
    states = list(answer.partitions)
    del answer.partitions[:]
    answer.experiment.CopyFrom(reader_pb2.Experiment(name=name, partitions=states))
    return answer
