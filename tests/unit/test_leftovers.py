"""A test run that is interrupted leaves no process and no folder behind, whatever ended it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.servers.logs import wait_until

TESTS = Path(__file__).parents[1]
CONFTEST = """
from support.drills import leftovers

def pytest_configure(config):
    if not hasattr(config, "workerinput"):
        leftovers.guard()
"""
# The first child starts like a role, the second one in a separate session, like a stack or a Spark driver.
RUN = """
import subprocess, sys, time
from support.drills import leftovers

SLEEP = [sys.executable, "-c", "import time; time.sleep(300)"]

def test_that_hangs():
    (leftovers.run_folder() / "data").mkdir()
    pids = [subprocess.Popen(SLEEP).pid, subprocess.Popen(SLEEP, start_new_session=True).pid]
    with open({pids!r}, "w") as file:
        print(*pids, leftovers.run_folder(), file=file)
    time.sleep(300)
"""
HEARS_CTRL_C = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import pytest
sys.exit(pytest.main())
"""
WITHIN_S = 60.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strike", "processes"),
    [
        (signal.SIGINT, ("-p", "no:xdist")),
        (signal.SIGTERM, ("-p", "no:xdist")),
        (signal.SIGTERM, ("-n", "1")),
        (signal.SIGKILL, ("-n", "1")),
    ],
    ids=["ctrl-c", "terminated", "terminated with xdist", "killed with xdist"],
)
def test_no_process_of_an_interrupted_run_is_left(
    tmp_path: Path, strike: signal.Signals, processes: tuple[str, ...]
) -> None:
    pids = tmp_path / "pids"
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_hang.py").write_text(RUN.format(pids=str(pids)))
    # A run in the background may ignore Ctrl-C, and its children would too.
    command = [sys.executable, "-c", HEARS_CTRL_C, "-q", *processes, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL) as run:
        wait_until(lambda: pids.exists() and len(pids.read_text().split()) == 3, WITHIN_S)
        run.send_signal(strike)
        run.wait(WITHIN_S)
    first, second, folder = pids.read_text().split()
    left = [int(first), int(second)]
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in left) and not Path(folder).exists(), WITHIN_S)
