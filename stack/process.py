"""A server process: output to a file, signals by name, never left behind by a dying parent unless detached."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

STOP_WITHIN_S = 20.0
OUTPUT_TAIL = 4_000


class ServerProcess:
    """One command, started and stopped as often as asked. detached: it outlives this process."""

    def __init__(self, command: Sequence[str], output: Path, *, detached: bool = False) -> None:
        guard = [] if detached else _die_with_parent()
        self._command = [*guard, *command]
        self._output = output
        self._detached = detached
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the last start."""
        assert self._process is not None, "never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it was started and has not ended, suspended or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start; the caller waits for an answer of the protocol."""
        assert not self.running, "already running"
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=self._detached
            )

    def stop(self) -> None:
        """SIGTERM, and SIGKILL for one that will not end in time."""
        if not self.running:
            return
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            self._wait(STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """SIGKILL."""
        if self.running:
            self.signal(signal.SIGKILL)
            self._wait(STOP_WITHIN_S)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None, "never started"
        self._process.send_signal(number)

    def tail(self) -> str:
        """The end of what it wrote."""
        return self._output.read_text(errors="replace")[-OUTPUT_TAIL:]

    def _wait(self, timeout_s: float) -> None:
        assert self._process is not None, "never started"
        self._process.wait(timeout_s)


def wait_until_gone(pid: int, within_s: float) -> bool:
    """Wait for a process that is no child of ours."""
    give_up_at = time.monotonic() + within_s
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.05)
    return True


def _die_with_parent() -> list[str]:
    # A test run that is killed must not leave JVMs; without util-linux they are merely not guarded.
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []
