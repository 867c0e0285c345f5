"""`tsdb spark jobs` shows and switches the scheduled jobs from anywhere, and `tsdb spark run` refuses wrong schedules
before a session starts."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_backfill.application.journal import Journal
from spark_backfill.application.runs import Cause, RunOutcome, RunResult
from spark_backfill.application.schedule import Schedule
from spark_backfill.application.scheduler import Scheduler
from spark_backfill.result import JobResult
from support.cli import Shell
from support.servers.logs import wait_until
from support.spark.local_rows import LOCAL
from tsdb.cli.spark.running import CommonJobOptions
from tsdb.log.interface import META, METRICS
from tsdb.log.open import open_log
from tsdb.log.settings import LogSettings
from tsdb.model.clock import SystemClock

CLOCK = SystemClock()
HOURLY = Schedule("0 * * * *")


@pytest.fixture
def log(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A log as commands make it. Nothing of Java is found from here on."""
    url = f"sqlite:///{tmp_path}/log.db"
    shell.ok("topics", "create", "--log", url, "--partitions", 2, "--replication", 1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    return url


def table(text: str) -> dict[str, list[str]]:
    """Cells by the first cell of their row."""
    rows = [[cell for cell in line.split("  ") if cell.strip()] for line in text.splitlines()]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}


def test_jobs_are_listed_before_any_application(shell: Shell, log: str) -> None:
    done = shell.ok("spark", "jobs", "--log", log)
    assert "no application runs: start `tsdb spark scheduler`" in done.err
    assert {"merge-late", "downsample", "verify"} <= {line.split()[0] for line in done.text.splitlines()}
    listed = shell.ok("spark", "jobs", "--log", log, "--output", "json").json
    assert listed["application"] is None
    assert [(job["kind"], job["state"], job["schedule"]) for job in listed["jobs"]] == [
        ("merge-late", "stopped", None),
        ("downsample", "stopped", None),
        ("verify", "stopped", None),
    ]


def test_jobs_of_an_application_are_paused_resumed_and_requested_from_anywhere(shell: Shell, log: str) -> None:
    with open_log(log) as opened:
        scheduler = Scheduler(Journal(opened, CLOCK), {"verify": HOURLY, "merge-late": None}, CLOCK)
        scheduler.open()
        scheduler.begin("merge-late", Cause.REQUEST)
        scheduler.end("merge-late", RunOutcome(RunResult.FAILED, "loader_behind", "the loader is away"), CLOCK.now_ms())
        scheduler.begin("verify", Cause.SCHEDULE)
        scheduler.beat()

        listed = shell.ok("spark", "jobs", "--log", log, "--output", "json").json
        assert listed["application"]["live"]
        folding, _, verifying = listed["jobs"]
        assert (verifying["state"], verifying["schedule"], verifying["next_due_ms"]) == ("running", "0 * * * *", None)
        assert (folding["state"], folding["reason"], folding["failures"]) == ("failed 1 time", "loader_behind", 1)
        assert folding["runs"][0]["text"] == "the loader is away"

        paused = shell.ok("spark", "jobs", "pause", "verify", "--log", log)
        assert "pause verify: recorded; the application follows within a second" in paused.err
        shell.ok("spark", "jobs", "run", "merge-late", "--log", log)
        scheduler.end("verify", RunOutcome(RunResult.OK, figures={"items": 4}), CLOCK.now_ms())
        assert [kind for kind, _ in scheduler.due()] == ["merge-late"]
        scheduler.beat()
        text = shell.ok("spark", "jobs", "--log", log).text
        assert [line.split()[-1] for line in text.splitlines() if line.startswith("verify")] == ["-"]
        assert "paused" in text
        assert " now " in text
        assert scheduler.next_due("verify") is None
        shell.ok("spark", "jobs", "resume", "verify", "--log", log)
        assert scheduler.due()
        assert scheduler.next_due("verify") is not None

        unknown = shell.run("spark", "jobs", "run", "downsample", "--log", log)
        assert (unknown.code, "does not have the job downsample" in unknown.err) == (1, True), unknown.err
        scheduler.beat(ended=True)
        late = shell.ok("spark", "jobs", "run", "verify", "--log", log)
        assert "it has its effect when one starts" in late.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pause",), "pause needs a kind of job"),
        (("list", "verify"), "list takes no kind"),
        (("pause", "compaction"), "'compaction' is not one of"),
        (("forget", "verify"), "'forget' is not one of"),
    ],
)
def test_what_is_no_action_is_a_misuse(shell: Shell, log: str, arguments: tuple[str, ...], said: str) -> None:
    done = shell.run("spark", "jobs", *arguments, "--log", log)
    assert done.code == 2
    assert said in done.err


def test_a_record_of_a_newer_version_is_named(shell: Shell, log: str) -> None:
    with open_log(log) as opened:
        opened.append_sync(META, 0, b"\x08\x09", key=f"spark-jobs/{opened.topic_id(METRICS)}/pause/verify".encode())
    for command in (("jobs",), ("run",)):
        done = shell.run("spark", *command, "--log", log)
        assert done.code == 1
        assert "/pause/verify, offset" in done.err
        assert "is of version 9; this process knows 1" in done.err
        assert "JAVA_HOME" not in done.err


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--merge-late", "hourly"), 2, "for '--merge-late': 'hourly' is not a schedule: Wrong number of fields"),
        (("--downsample", "61 * * * *"), 2, "for '--downsample': '61 * * * *' is not a schedule: Bad minute"),
        (("--verify", "0 0 31 2 *"), 2, "for '--verify': '0 0 31 2 *' is not a schedule"),
        (("--merge-late", "0 * * * *"), 1, "merge-late needs a history: give --history, or --merge-late off"),
        (("--min-fragments", "0"), 2, "for '--min-fragments'"),
    ],
)
def test_a_wrong_schedule_is_named_in_one_line(
    shell: Shell, log: str, options: tuple[str, ...], code: int, said: str
) -> None:
    done = shell.run("spark", "run", "--log", log, *options)
    assert (done.code, said in done.err) == (code, True), done.err
    assert len(done.err.strip().splitlines()) == 1
    assert "JAVA_HOME" not in done.err


def test_a_scheduler_runs_until_a_signal_and_ends_with_its_jobs_as_rows(
    shell: Shell, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    results: list[JobResult] = []

    def run(self: CommonJobOptions, name: str, job: Callable[[Any], JobResult], *, progress: bool) -> None:
        assert (name, progress) == ("scheduler", False)
        results.append(job(LOCAL))

    def live() -> bool:
        with open_log(log, settings=LogSettings(embedded_guest=True)) as opened:
            journal = Journal(opened, CLOCK)
            journal.refresh()
            return journal.view.application is not None and not journal.view.application.record.ended

    def stop() -> None:
        wait_until(live)
        os.kill(os.getpid(), signal.SIGTERM)

    # The command without a session: no schedule is due meanwhile.
    monkeypatch.setattr(CommonJobOptions, "run", run)
    stopper = threading.Thread(target=stop, name="stopper")
    stopper.start()
    done = shell.run("spark", "scheduler", "--log", log, "--http", "127.0.0.1:0", "--verify", "0 0 1 1 *")
    stopper.join()
    assert done.code == 0, done.err
    (result,) = results
    assert [(row.kind, row.ok, row.failed) for row in result.rows] == [("verify", 0, 0)]
    listed = shell.ok("spark", "jobs", "--log", log, "--output", "json").json
    assert {job["kind"]: job["state"] for job in listed["jobs"]}["verify"] == "stopped"
