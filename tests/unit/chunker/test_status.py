"""The chunker's status: an exception of its reporter ends the process, because a silent chunker looks like none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from chunker.member import Member
from chunker.status import ChunkerReporter
from support.servers.logs import wait_until
from tsdb.chunks.stage_metrics import StageMetrics
from tsdb.log.interface import Log
from tsdb.model.clock import SystemClock
from tsdb.model.time_set import DEMO


def test_an_unexpected_exception_is_kept() -> None:
    broken = RuntimeError("broken")

    def high_watermarks(*_: Any) -> None:
        raise broken

    log, member = SimpleNamespace(high_watermarks=high_watermarks), SimpleNamespace(partitions={})
    reporter = ChunkerReporter(
        cast(Log, log),
        cast(Member, member),
        DEMO,
        StageMetrics("python"),
        SystemClock(),
        lag_enter_s=5.0,
        lag_leave_s=20.0,
    )
    assert reporter.failure() is None
    reporter.start()
    wait_until(lambda: reporter.failure() is not None)
    assert reporter.failure() is broken
    assert reporter.join(60.0)
