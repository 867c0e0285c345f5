"""A store over an embedded log at its worst: gaps in the offsets, also at the end; a broker clock that steps back."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from support.servers.logs import LogFactory
from support.servers.node import Gateway, Node, label_set
from tsdb.client import ReadOptions
from tsdb.log.settings import LogSettings
from tsdb.log.sqlite.appends import FaultPlan
from tsdb.log.sqlite.log import SqliteLog
from tsdb.model.clock import SystemClock

WRITES = 120


def test_gaps_and_a_clock_that_steps_back_change_no_answer(tmp_path: Path) -> None:
    faults = FaultPlan(seed=7, gap_share=1.0, step_back_share=0.4, step_back_ms=5000)
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as factory:
        factory.create(3)
        with SqliteLog(tmp_path / "log.db", "", LogSettings(), SystemClock(), faults) as log:
            gateway = Gateway(log)
            now_ms = gateway.clock.now_ms()
            labels = [label_set(number) for number in range(20)]
            with Node(log) as live:
                for step in range(WRITES):
                    tokens = gateway.write(labels, np.full(20, now_ms - 1000 + step), np.full(20, float(step)))
                # Every record has a gap behind it: the end of each partition is one.
                live.wait_ready()
                options = ReadOptions(after=tokens)
                followed = live.client.select("m", now_ms - 5000, now_ms + 5000, options=options)
            with Node(log).wait_ready_on_entry() as later:
                replayed = later.client.select("m", now_ms - 5000, now_ms + 5000)
    assert followed.samples == replayed.samples == 20 * WRITES
    for one in (followed, replayed):
        assert sorted(one.canonical) == sorted(labels)
        for series in one.series:
            assert series.values.tolist() == list(map(float, range(WRITES)))
    assert all(state.next_offset > WRITES for state in replayed.partitions)
