"""Attacks the end of a Spark job: SIGTERM while tasks run, and while it waits for a loader that does not exist."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from support.servers.logs import LogFactory, wait_until
from support.servers.processes import TSDB
from support.spark.pipeline_service import PARTITIONS, WITHIN_S, recorded
from support.spark.spark import CONF
from tsdb.log.interface import CHUNKS

pytestmark = [pytest.mark.soak, pytest.mark.timeout(2 * WITHIN_S)]
Moment = Callable[[psutil.Process, str], bool]


def a_worker_runs(job: psutil.Process, url: str) -> bool:
    """Whether the job is within a call to the JVM."""
    java = [one for one in job.children() if "java" in one.name()]
    return any("python" in one.name() for jvm in java for one in jvm.children(recursive=True))


def chunks_are_written(job: psutil.Process, url: str) -> bool:
    """Whether the job waits for the loader."""
    with LogFactory(url, "") as logs:
        return any(marks.high for marks in logs.open().watermarks(CHUNKS, range(PARTITIONS)).values())


@pytest.mark.parametrize("moment", [a_worker_runs, chunks_are_written])
def test_a_terminated_job_ends_its_session_and_names_the_command_for_a_rerun(moment: Moment, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"labels": {"__name__": "up", "job": "j"}, "ts_ms": 1_577_836_800_000, "value": 1}))
    url, history = recorded(tmp_path), f"sqlite:///{tmp_path}/history.db"
    settings = ["--log", url, "--time-set", "demo"]
    create = [*TSDB, "history", "create", "--history", history, "--log", url]
    subprocess.run(create, check=True, timeout=WITHIN_S, env={**os.environ, "TSDB_TIME_SET": "demo"})
    command = [*TSDB, "spark", "import", str(rows), "--format", "jsonl", *settings, "--history", history]
    command += ["--output", "json", "--wait", f"{WITHIN_S:.0f}s", "--master", "local[2]"]
    command += [word for key, value in CONF.items() for word in ("--conf", f"{key}={value}")]
    err = tmp_path / "stderr"
    with err.open("wb") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as running:
        job = psutil.Process(running.pid)
        wait_until(lambda: running.poll() is not None or moment(job, url), WITHIN_S)
        assert running.poll() is None, err.read_text()[-4000:]
        begun = job.children(recursive=True)
        running.send_signal(signal.SIGTERM)
        out = running.communicate(timeout=WITHIN_S)[0]
    said = err.read_text()
    assert running.returncode == 128 + signal.SIGTERM, said[-4000:]
    summary = json.loads(out)
    assert (summary["job"], summary["ok"], summary["reason"]) == ("import", False, "terminated")
    assert "to run it again: tsdb spark import --job-id" in said
    assert psutil.wait_procs(begun, WITHIN_S)[1] == []
