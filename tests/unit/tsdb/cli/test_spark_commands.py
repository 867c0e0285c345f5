"""`tsdb spark`: a job with settings that differ from the shared ones is refused before a JVM starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.cli import Shell

ALERTS = Path(__file__).resolve().parents[4] / "deploy" / "prometheus" / "alerts.yaml"
RANGE = ("--from", "2026-11-20T00:00Z", "--to", "2026-11-20T04:00Z")
JOBS = {
    "import": ("rows.parquet",),
    "export": ("--to", "folder"),
    "merge-late": ("--apply",),
    "downsample": (),
    "rebuild": RANGE,
    "verify": RANGE,
    "pipeline": ("--checkpoint", "file:///nowhere"),
    "rules": ("--rules", str(ALERTS), "--start", "2026-11-20T00:00Z", "--end", "2026-11-20T04:00Z"),
    "run": (),
}


@pytest.fixture
def places(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A log and a history as commands make them. Nothing of Java is found from here on."""
    log, history = f"sqlite:///{tmp_path}/log.db", f"sqlite:///{tmp_path}/history.db"
    shell.ok("topics", "create", "--log", log, "--partitions", 3, "--replication", 1)
    shell.ok("history", "create", "--log", log, "--history", history, "--replication", 1)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    return "--log", log, "--history", history


@pytest.mark.parametrize("job", JOBS)
def test_settings_that_differ_from_meta_are_named(shell: Shell, places: tuple[str, ...], job: str) -> None:
    done = shell.run("spark", job, *JOBS[job], *places, "--time-set", "demo")
    assert done.code == 1
    assert "time_set" in done.err
    assert "JAVA_HOME" not in done.err
    assert "run the same again" not in done.err, "the same again would be refused again"


@pytest.mark.parametrize("job", JOBS)
def test_a_history_of_another_log_is_named(shell: Shell, places: tuple[str, ...], job: str, tmp_path: Path) -> None:
    log = f"sqlite:///{tmp_path}/other.db"
    shell.ok("topics", "create", "--log", log, "--partitions", 5, "--replication", 1)
    done = shell.run("spark", job, *JOBS[job], *places, "--log", log)
    assert done.code == 1
    assert "history was made with 3" in done.err


@pytest.mark.parametrize("job", JOBS)
def test_a_log_that_is_not_there_is_named(shell: Shell, job: str, tmp_path: Path) -> None:
    done = shell.run("spark", job, *JOBS[job], "--log", f"sqlite:///{tmp_path}/empty.db")
    assert done.code == 1
    assert "empty.db does not exist" in done.err


@pytest.mark.parametrize("job", JOBS)
def test_a_job_that_failed_says_how_it_is_run_again(shell: Shell, places: tuple[str, ...], job: str) -> None:
    done = shell.run("spark", job, *JOBS[job], *places)
    assert done.code == 1
    assert "JAVA_HOME is " in done.err
    flags = {
        "import": " --job-id ",
        "rules": " --job-id ",
        "export": " --overwrite",
        "rebuild": " --from 1",
        "verify": " --from 1",
    }
    assert f"to run it again: tsdb spark {job}{flags.get(job, '')}" in done.err
    assert "with all other options unchanged" in done.err


@pytest.mark.parametrize(
    ("job", "arguments", "said"),
    [
        ("rebuild", ("--from", "1", "--to", "14400000"), "no whole windows of 14400000 ms; 0 to 14400000 are"),
        ("verify", ("--from", "14400000", "--to", "0"), "is empty"),
        ("rules", ("--rules", str(ALERTS), "--start", "1", "--end", "2", "--job-id", "a b"), "want 1 to 100 letters"),
        ("import", ("x", "--job-id", "a b"), "want 1 to 100 letters"),
        ("import", ("x", "--metric", "m", "--constant", "__name__=x"), "metric columns name the metric"),
    ],
)
def test_what_cannot_be_asked_is_named(
    shell: Shell, places: tuple[str, ...], job: str, arguments: tuple[str, ...], said: str
) -> None:
    done = shell.run("spark", job, *arguments, *places)
    assert done.code == 1
    assert said in done.err
    assert "JAVA_HOME" not in done.err
