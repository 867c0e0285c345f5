"""Verify reads `chunks` from the time on in which the windows of its range may have got records."""

from __future__ import annotations

from pathlib import Path

from spark_backfill.jobs.verify.job import EARLIER_MS, chunk_spans
from support.servers.logs import LogFactory
from tsdb.log.interface import CHUNKS
from tsdb.model.clock import ManualClock

HOUR_MS = 3600 * 1000
BEGIN_MS = 480_000 * HOUR_MS


def test_records_from_before_the_range_are_not_read(tmp_path: Path) -> None:
    clock = ManualClock(BEGIN_MS)
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as logs:
        logs.create(2)
        log = logs.open(clock=clock)
        for number in range(100):
            log.append_sync(CHUNKS, 0, b"value", key=b"%d" % number)
            clock.advance(HOUR_MS)
        assert chunk_spans(log, 0) == {0: (0, 100), 1: (0, 0)}
        assert chunk_spans(log, BEGIN_MS + EARLIER_MS) == {0: (0, 100), 1: (0, 0)}
        assert chunk_spans(log, BEGIN_MS + EARLIER_MS + 90 * HOUR_MS) == {0: (90, 100), 1: (0, 0)}
        assert chunk_spans(log, BEGIN_MS + EARLIER_MS + 89 * HOUR_MS + 1) == {0: (90, 100), 1: (0, 0)}
        assert chunk_spans(log, BEGIN_MS + EARLIER_MS + 100 * HOUR_MS) == {0: (100, 100), 1: (0, 0)}
