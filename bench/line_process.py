"""A child process of a bench that answers each line on its stdin with a line of JSON on its stdout."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any


class LineProcess:
    """The parent's side of the process, for one thread. module: the module that the child runs with `python -m`."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._module = module
        command = [sys.executable, "-m", module, *arguments]
        self._child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._child.pid

    def line(self) -> str:
        """The child's next line. Raises RuntimeError when it has ended."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._module} ended with code {self._child.wait()}")
        return line

    def answer(self) -> dict[str, Any]:
        """The child's next line as JSON."""
        found: dict[str, Any] = json.loads(self.line())
        return found

    def ask(self, text: str = "") -> dict[str, Any]:
        """Send a line and return its answer."""
        assert self._child.stdin is not None
        self._child.stdin.write(text + "\n")
        self._child.stdin.flush()
        return self.answer()

    def end(self, within_s: float) -> None:
        """Close the child's stdin and wait for its end. After within_s the child is killed. A second call does
        nothing."""
        assert self._child.stdin is not None
        self._child.stdin.close()
        try:
            self._child.wait(within_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End the child with SIGKILL, without a drain."""
        self._child.kill()
        self._child.wait()
