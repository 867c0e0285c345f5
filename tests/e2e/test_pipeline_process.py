"""`tsdb spark run` as a service runs it: a signal to its process group ends it well, and its ports tell of it.

Its stream is that of `tsdb spark pipeline`, whose process has its drills in tests/soak.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.spark.pipeline_service import WITHIN_S, as_timeout, ends_well, metric

VERIFIED = 'tsdb_spark_job_runs_total{kind="verify",result="ok"}'


@pytest.mark.timeout(2 * WITHIN_S)
def test_a_signal_to_its_process_group_ends_stream_and_jobs_with_the_summary(tmp_path: Path) -> None:
    done = ends_well(
        as_timeout,
        tmp_path,
        job="run",
        options=("--verify", "*/5 * * * * *"),
        until=lambda http: metric(http, VERIFIED) >= 1,
    )
    assert list(done.ready["jobs"]) == ["verify"], "the other jobs need a history"
    assert done.ready["jobs"]["verify"]["last_begin_ms"] > 0
    (row,) = done.summary["rows"]
    assert (row["kind"], row["findings"], row["failed"]) == ("verify", 0, 0), row
    assert row["ok"] >= 1
