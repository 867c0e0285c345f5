"""`tsdb spark run` as a service runs it: a signal to its process group ends it well, its ports tell of it, and it keeps
the Iceberg table.

Its stream is that of `tsdb spark pipeline`, whose process has its drills in tests/soak.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from support.data.heads import id_of
from support.data.table_rows import new_table, reopened, settings_in
from support.spark.pipeline_service import PARTITIONS, WITHIN_S, as_timeout, ends_well, metric
from tsdb.history.iceberg.catalog import open_catalog
from tsdb.history.iceberg.state import table_state
from tsdb.model.time_set import DEMO

VERIFIED = 'tsdb_spark_job_runs_total{kind="verify",result="ok"}'
KEPT = PARTITIONS * DEMO.window_ms // 1000  # Samples of a window.
SAMPLES = 'tsdb_tables_samples_total{kind="added"}'


@pytest.mark.timeout(2 * WITHIN_S)
def test_a_signal_to_its_process_group_ends_stream_and_jobs_with_the_summary(tmp_path: Path) -> None:
    with open_catalog(settings_in(tmp_path)) as catalog:
        new_table(catalog)
    tables = ("--tables", settings_in(tmp_path).catalog, "--tables-commit-interval-s", "0.2")
    done = ends_well(
        as_timeout,
        tmp_path,
        job="run",
        options=("--verify", "*/5 * * * * *", *tables),
        until=lambda http: metric(http, VERIFIED) >= 1 and metric(http, SAMPLES) >= KEPT,
    )
    assert list(done.ready["jobs"]) == ["verify"], "the other jobs need a history"
    assert done.ready["jobs"]["verify"]["last_begin_ms"] > 0
    (row,) = done.summary["rows"]
    assert (row["kind"], row["findings"], row["failed"]) == ("verify", 0, 0), row
    assert row["ok"] >= 1
    table = reopened(tmp_path)
    rows = table.scan(selected_fields=("series_id", "ts", "value")).to_arrow()
    series, ts = rows["series_id"].to_numpy().view(np.uint64).tolist(), rows["ts"].to_pylist()
    assert set(series) == {id_of(number) for number in range(PARTITIONS)}
    assert len(set(zip(series, ts, strict=True))) == len(rows) >= KEPT, "a (series, timestamp) is there twice"
    assert set(rows["value"].to_pylist()) == {1.0}
    state = table_state(table)
    assert state is not None
    assert sorted(state.cut) == list(range(PARTITIONS))
