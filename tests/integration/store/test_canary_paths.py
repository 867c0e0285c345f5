"""The canary's checks over a real log, store, chunk stage, loader and querier: all paths are exact, and a querier that
answers short or wrong is found on each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from support.counters import sample
from support.fakes.lying_reader import Lie, LyingReader, with_wrong_value, without_first_samples
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory
from support.servers.node import Node, store_options
from support.servers.pipeline import WINDOW_MS, Pipeline
from support.servers.querier_node import QuerierNode
from tsdb.canary.canary_metrics import READ_PATHS
from tsdb.canary.checking import Checker
from tsdb.canary.layout import Layout, values_of
from tsdb.canary.ledger import Ledger
from tsdb.canary.paths import Paths
from tsdb.canary.ranges import RANGE_TICKS, SEAM_TICKS
from tsdb.client import connect
from tsdb.log.interface import METRICS
from tsdb.model.time_set import DEMO
from tsdb.v1 import common_pb2

PARTITIONS = 3
WINDOWS = 11
START_MS = 60_000_000 * WINDOW_MS
LAYOUT = Layout("c", 500, 6)
BATCH_MS = 2_500  # Sample time of one record.


@dataclass(frozen=True)
class Rig:
    """A checker that reads through a reader which can lie."""

    reader: LyingReader
    checker: Checker

    def check(self, result: str) -> dict[str, float]:
        """One round: what it adds to the counts of this result, by path."""
        before = counts(result)
        self.checker.check()
        return {path: after - before[path] for path, after in counts(result).items()}


def counts(result: str) -> dict[str, float]:
    return {path: sample("tsdb_canary_samples_total", path=path, result=result) for path in READ_PATHS}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("canary")
    log, history = LogFactory(f"sqlite:///{folder}/log.db", ""), HistoryFactory(f"sqlite:///{folder}/history.db")
    with log as logs, history as histories:
        logs.create(PARTITIONS, timestamp_type="CreateTime")
        histories.create()
        way = Pipeline(logs.open(), histories.open(), LAYOUT.labels, START_MS)
        ticks = write_all(way)
        loaded_ms = START_MS + (WINDOWS - 1) * WINDOW_MS
        with way.chunking(loaded_ms):
            pass
        way.load(loaded_ms)
        topic_id = way.log.topic_id(METRICS)
        # Opened after the last write: its memory begins in the middle of the log.
        with (
            Node(way.log, store_options(DEMO), clock=way.clock).wait_ready_on_entry() as node,
            QuerierNode(
                [node.address], way.history, topic_id=topic_id, partitions=PARTITIONS, time_set=DEMO
            ) as querier,
            LyingReader(querier.address) as reader,
            connect(reader.address) as client,
        ):
            # A restarted canary: it has seen one acknowledgement, and the samples name the others.
            ledger = Ledger(LAYOUT.period_ms)
            tokens = [common_pb2.Token(topic_id=topic_id, partition=number) for number in range(PARTITIONS)]
            ledger.acknowledge(int(ticks[-1]), tokens)
            depth_ms = RANGE_TICKS * LAYOUT.period_ms
            paths = Paths(client, LAYOUT, ledger, depth_ms=depth_ms, settle_ms=LAYOUT.period_ms)
            yield Rig(reader, Checker(paths, ledger, way.clock, 1.0))


def write_all(way: Pipeline) -> np.typing.NDArray[np.int64]:
    """Write like a canary that never failed. Returns the sample times."""
    ticks = LAYOUT.ticks(START_MS, START_MS + WINDOWS * WINDOW_MS)
    rows, shape = np.arange(LAYOUT.series), (LAYOUT.series, len(ticks))
    values = values_of(
        np.broadcast_to(rows[:, np.newaxis], shape),
        np.broadcast_to(ticks, shape),
        np.broadcast_to(np.arange(shape[1]), shape),
    )
    at_once = BATCH_MS // LAYOUT.period_ms
    for first in range(0, len(ticks), at_once):
        columns = range(first, first + at_once)
        samples = [(row, int(ticks[column]), float(values[row, column])) for column in columns for row in rows.tolist()]
        way.write(samples, int(ticks[columns[-1]]))
    return ticks


def test_every_path_of_a_restarted_canary_is_exact(rig: Rig) -> None:
    exact = rig.check("exact")
    assert exact["history"] == RANGE_TICKS * LAYOUT.series
    assert exact["seam"] > SEAM_TICKS * LAYOUT.series
    assert min(exact["memory"], exact["promql"]) > 0
    for result in ("mismatch", "missing", "unexpected"):
        assert rig.check(result) == dict.fromkeys(READ_PATHS, 0.0), result


@pytest.mark.parametrize(
    ("lie", "result", "paths"),
    [
        (without_first_samples, "missing", {"memory", "seam", "history"}),
        (with_wrong_value, "mismatch", {"memory", "seam", "history", "promql"}),
    ],
)
def test_a_querier_that_answers_short_or_wrong_is_found_on_each_path(
    rig: Rig, lie: Lie, result: str, paths: set[str]
) -> None:
    rig.reader.lie = lie
    try:
        found = rig.check(result)
    finally:
        rig.reader.lie = None
    assert {path for path, count in found.items() if count} == paths
