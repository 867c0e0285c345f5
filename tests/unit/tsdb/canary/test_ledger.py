"""The ledger knows which times were acknowledged, and how long the run before the next one is."""

from __future__ import annotations

import numpy as np

from tsdb.canary.layout import RUN_MAX
from tsdb.canary.ledger import RUNS_MAX, Ledger
from tsdb.v1 import common_pb2


def test_a_run_ends_where_a_time_is_left_out() -> None:
    ledger = Ledger(10)
    assert ledger.run_before(100) == 0
    for ts_ms in (100, 110, 120, 140):
        ledger.acknowledge(ts_ms, ())
    assert (ledger.run_before(150), ledger.run_before(160)) == (1, 0)
    assert ledger.acknowledged(np.arange(90, 160, 10)).tolist() == [False, True, True, True, False, True, False]


def test_a_run_is_bounded() -> None:
    ledger = Ledger(1)
    for ts_ms in range(RUN_MAX + 10):
        ledger.acknowledge(ts_ms, ())
    assert ledger.run_before(RUN_MAX + 10) == RUN_MAX


def test_the_oldest_runs_are_forgotten() -> None:
    ledger = Ledger(1)
    for number in range(RUNS_MAX + 1):
        ledger.acknowledge(2 * number, ())
    assert ledger.acknowledged(np.array([0, 2])).tolist() == [False, True]


def test_the_newest_write_has_its_tokens_and_partitions_add_up() -> None:
    ledger = Ledger(10)
    assert ledger.newest is None
    for ts_ms, partition in ((100, 3), (110, 5)):
        ledger.acknowledge(ts_ms, [common_pb2.Token(partition=partition, record_offset=ts_ms)])
    newest = ledger.newest
    assert newest is not None
    assert (newest.ts_ms, [token.record_offset for token in newest.tokens]) == (110, [110])
    assert ledger.partitions == {3, 5}
