"""Attacks the promise that an OK means stored, on an embedded log that loses acks, fails appends and skips offsets."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.drills.senders import WRITERS, Senders, gateway_on, judge
from support.oracles.log_reading import read_contents
from support.servers.logs import LogFactory
from tsdb.log.settings import LogSettings
from tsdb.log.sqlite.appends import FaultPlan
from tsdb.log.sqlite.log import SqliteLog
from tsdb.model.clock import SystemClock

FAULTS = [
    FaultPlan(seed=1, ack_lost_share=0.2),
    FaultPlan(seed=2, failed_share=0.2),
    FaultPlan(seed=3, gap_share=0.5, step_back_share=0.3, step_back_ms=5000),
    FaultPlan(seed=4, ack_lost_share=0.05, failed_share=0.05, gap_share=0.1, slow_share=0.1, slow_s=0.01),
]


@pytest.mark.parametrize("faults", FAULTS)
def test_what_is_told_ok_is_stored_and_all_ends_well_by_sending_again(tmp_path: Path, faults: FaultPlan) -> None:
    path = tmp_path / "log.db"
    with LogFactory(f"sqlite:///{path}", "f.") as factory:
        factory.create(3)
        with SqliteLog(path, "f.", LogSettings(), SystemClock(), faults) as log:
            with Senders(gateway_on(log), oks=25) as senders:
                senders.join()
            assert senders.oks == 25 * WRITERS
            assert (senders.errors > 0) == (faults.ack_lost_share + faults.failed_share > 0)
            judge(read_contents(log), senders.senders)
