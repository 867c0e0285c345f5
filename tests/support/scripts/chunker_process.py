"""A chunker as a separate process, over a log whose time runs faster: a process to kill.

`python -m support.scripts.chunker_process URL PREFIX BASE_MS SPEED BEGAN`, the last three as FastClock takes them.
Prints a line once it has partitions.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from support.servers.chunkers import FastClock, chunker_options, running
from tsdb.log.open import open_log
from tsdb.log.settings import LogSettings

SESSION_S = 6.5  # About the least that a broker allows: a killed member's partitions wait for it.
TESTS = Path(__file__).resolve().parents[2]


class ChunkerProcess:
    """Starts the process at construction. `ready` waits for its first partitions, `kill` sends SIGKILL."""

    def __init__(self, url: str, prefix: str, clock: FastClock) -> None:
        arguments = [url, prefix, str(clock.base_ms), str(clock.speed), repr(clock.began)]
        path = os.pathsep.join([str(TESTS), str(TESTS.parent)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.scripts.chunker_process", *arguments],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )

    def ready(self) -> None:
        """Return when it has partitions."""
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n", "the chunker ended before it had partitions"

    def kill(self) -> None:
        """Kill it at any point of its work."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


def main(url: str, prefix: str, base_ms: str, speed: str, began: str) -> None:
    """Run the chunker until the process is killed."""
    clock = FastClock(int(base_ms), float(speed), began=float(began))
    with (
        open_log(url, prefix=prefix, settings=LogSettings(group_session_s=SESSION_S), clock=clock) as log,
        running(log, chunker_options(), clock) as chunker,
    ):
        while not chunker.statuses():
            time.sleep(0.05)  # Interval of checks.
        print("ready", flush=True)
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
