"""The examples of jobs run on an embedded log and history: a notebook, a daily schedule."""

from __future__ import annotations

import runpy
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples import spark_daily
from spark_backfill import JobResult
from support.spark.chunk_progress import write_progress
from support.spark.imports import ImportGround
from tsdb.model.errors import Unavailable

FIRST = datetime(2020, 1, 1, tzinfo=UTC)
EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def variables(embedded: ImportGround, monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses as a user of the examples gives them."""
    monkeypatch.setenv("TSDB_LOG", embedded.places.log)
    monkeypatch.setenv("TSDB_HISTORY", embedded.places.history)


@pytest.mark.usefixtures("spark", "variables")
def test_the_notebook_runs_from_the_top(capsys: pytest.CaptureFixture[str]) -> None:
    cells = runpy.run_path(str(EXAMPLES / "spark_notebook.py"))
    output = capsys.readouterr().out
    assert (cells["imported"].samples, cells["copy"].samples) == (96, 48)
    assert "0 of 12 chunks are due; 1.0 fragments a chunk" in output
    assert output.count("|2020-02-0") == 4, "two sensors, two days"


@pytest.mark.usefixtures("spark", "variables")
def test_the_daily_schedule_runs_its_tasks_in_order(
    embedded: ImportGround, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_progress(embedded.log)
    day = FIRST.date()
    start_ms = int(FIRST.timestamp() * 1000)
    rows = {"labels": ['{"__name__":"up"}'] * 24, "ts_ms": [start_ms + 3_600_000 * hour for hour in range(24)]}
    pq.write_table(pa.table({**rows, "value": [1.0] * 24}), tmp_path / f"{day}.parquet")
    spark_daily.main(str(day), str(tmp_path), str(tmp_path / "copies"))
    done = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert done[:2] == ["import", "merge-late"]
    assert sorted(done[2:]) == ["export", "verify"]
    assert pq.read_table(tmp_path / "copies" / str(day)).num_rows == 24


def test_a_task_is_repeated_while_a_dependency_is_away() -> None:
    failures = [Unavailable("the loader is behind", reason="loader_behind"), None]
    result = JobResult(job="export")

    def task(_: spark_daily.Day) -> JobResult:
        if (failure := failures.pop(0)) is not None:
            raise failure
        return result

    assert spark_daily.run_task(task, spark_daily.Day(date(2020, 1, 1), "", ""), delay_s=0.0) is result
