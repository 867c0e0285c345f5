"""Leftovers: whatever ends a test run, Ctrl-C, SIGTERM or SIGKILL, no process that it started stays behind.

All processes of a run inherit a mark in their environment. A guard outside the run waits for the end of the process
that began it and then kills whatever carries the mark: roles, brokers, JVMs and workers, in whatever session they are.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator

import psutil

MARK = "PYTEST_RUN_MARK"
QUIET_ROUNDS = 3  # A process may start another one while it is being killed.
ROUND_S = 0.1


def guard() -> None:
    """Mark all processes started from now on, and end them when this process has ended."""
    mark = uuid.uuid4().hex
    environment = {key: value for key, value in os.environ.items() if key != MARK}
    os.environ[MARK] = mark
    watched, held = os.pipe()
    command = [sys.executable, __file__, mark, str(watched)]
    # A new process session, so that Ctrl-C does not reach it. `held` closes with this process, however it ends.
    subprocess.Popen(
        command, pass_fds=[watched], env=environment, start_new_session=True, stdin=subprocess.DEVNULL
    ).returncode = 0  # It outlives this process: nothing waits for it.
    os.close(watched)
    os.set_inheritable(held, False)


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
    os.read(int(sys.argv[2]), 1)  # Returns at the end of the other side: nothing is ever written.
    _end_all(sys.argv[1])
