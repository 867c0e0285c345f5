"""A server process: its output goes to a file, and it ends with its parent unless it is detached.

An archive of a server's loaded classes (class data sharing): a JVM that maps it starts with 0.6 of the CPU.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stack.maven import JarSet, jars

STOP_WITHIN_S = 20.0
OUTPUT_TAIL = 4_000


class ServerProcess:
    """A command that can be started and stopped repeatedly. detached: it outlives this process."""

    def __init__(self, command: Sequence[str], output: Path, *, detached: bool = False) -> None:
        guard = [] if detached else _die_with_parent()
        self._command = [*guard, *command]
        self._output = output
        self._detached = detached
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the last start."""
        assert self._process is not None, "never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process was started and has not ended. A suspended process runs."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start without waiting until the server answers."""
        assert not self.running, "already running"
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=self._detached
            )

    def stop(self) -> bool:
        """Send SIGTERM, and SIGKILL when the process does not end within STOP_WITHIN_S.

        Returns whether it ended without SIGKILL.
        """
        if not self.running:
            return True
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            self._wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def kill(self) -> None:
        if self.running:
            self.signal(signal.SIGKILL)
            self._wait(STOP_WITHIN_S)

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "never started"
        self._process.send_signal(number)

    def tail(self) -> str:
        """The last part of the process's output."""
        return self._output.read_text(errors="replace")[-OUTPUT_TAIL:]

    def _wait(self, timeout_s: float) -> None:
        assert self._process is not None, "never started"
        self._process.wait(timeout_s)


def wait_until_gone(pid: int, within_s: float) -> bool:
    """Wait for the end of a process that need not be our child. False after the timeout."""
    give_up_at = time.monotonic() + within_s
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.05)
    return True


def _die_with_parent() -> list[str]:
    # A killed test run must not leave JVMs behind. Without util-linux there is no such guard.
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


def shared_classes(jar_set: JarSet, record: Callable[[str], bool]) -> str:
    """The JVM option by which a server uses its archive, made once beside its jars.

    record(option): runs the server with the option that writes the archive as the server ends; False if it was killed.
    Without an archive, and with one of another JVM or other jars, the JVM reads the classes from the jars.
    """
    folder = jars(jar_set)
    archive = folder.with_name(f"{folder.name}.jsa")
    if not archive.exists():
        with folder.with_name(f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not archive.exists():
                scratch = folder.with_name(f"{folder.name}.{os.getpid()}.jsa")
                if record(f"-XX:ArchiveClassesAtExit={scratch}") and scratch.exists():
                    scratch.rename(archive)
    return f"-XX:SharedArchiveFile={archive}"
