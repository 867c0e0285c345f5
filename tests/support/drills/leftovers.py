"""Leftovers: whatever ends a test run, Ctrl-C, SIGTERM or SIGKILL, no process that it started stays behind.

All processes of a run inherit a mark in their environment. A guard outside the run waits for the end of the process
that began it and then kills whatever carries the mark: roles, brokers, JVMs and workers, in whatever session they are.
It also removes the folder of the run, where the processes of a run keep what they share.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil

# A commit of an embedded log on a disk takes milliseconds of waiting, and twice the CPU of one in memory.
MEMORY = Path("/dev/shm")
MEMORY_FREE = 4 << 30  # A run writes less.
MEMORY_LEFT = 8 << 30  # Available of the machine: processes of a run take 5 GiB.
MARK = "PYTEST_RUN_MARK"
FOLDER = "PYTEST_RUN_FOLDER"
QUIET_ROUNDS = 3  # A process may start another one while it is being killed.
ROUND_S = 0.1


def guard() -> None:
    """Mark all processes started from now on, and end them when this process has ended. Makes the folder of the run."""
    mark = uuid.uuid4().hex
    environment = {key: value for key, value in os.environ.items() if key != MARK}
    os.environ[MARK] = mark
    os.environ[FOLDER] = tempfile.mkdtemp(prefix="pytest-run-", dir=_memory())
    watched, held = os.pipe()
    command = [sys.executable, __file__, mark, str(watched), os.environ[FOLDER]]
    # A new process session, so that Ctrl-C does not reach it. The pipe `held` closes with this process, however it
    # ends.
    subprocess.Popen(
        command, pass_fds=[watched], env=environment, start_new_session=True, stdin=subprocess.DEVNULL
    ).returncode = 0  # It outlives this process: nothing waits for it.
    os.close(watched)
    os.set_inheritable(held, False)


def _memory() -> Path | None:
    """A folder in memory, where there is enough of it."""
    if not os.access(MEMORY, os.W_OK) or psutil.virtual_memory().available < MEMORY_LEFT:
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free >= MEMORY_FREE else None


def run_folder() -> Path:
    """A folder for all processes of this run. It goes with the last of them."""
    return Path(os.environ[FOLDER])


def marked(mark: str) -> Iterator[psutil.Process]:
    """Processes of a run that still exist."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def _end_all(mark: str) -> None:
    quiet = 0
    while quiet < QUIET_ROUNDS:
        quiet += 1
        for process in marked(mark):
            quiet = 0
            with contextlib.suppress(psutil.Error):
                process.kill()
        time.sleep(ROUND_S)


if __name__ == "__main__":
    os.read(int(sys.argv[2]), 1)  # Wait for the end of the other process, which writes nothing.
    _end_all(sys.argv[1])
    shutil.rmtree(sys.argv[3], ignore_errors=True)
