"""Runs `tsdb` as its users do: as processes, seen through their ports only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from stack.ports import Ports
from tsdb.client import connect

READY_WITHIN_S = 600.0  # Covers a first compilation of all kernels on a busy machine.
SLOW_S = 20.0  # Time beside the drain on a busy machine. A process that waits for its clients takes a minute.
WITHOUT_GRPC = ("chunker", "loader", "canary", "ruler")
TSDB = (sys.executable, "-m", "tsdb.cli.main")


def run_tsdb(
    *arguments: str, timeout_s: float = 300.0, stdin: bytes | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run one client command to its end. The caller checks the exit code."""
    return subprocess.run(
        [*TSDB, *arguments],
        input=stdin,
        capture_output=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, **(env or {})},
    )


def tsdb_ok(*arguments: str, timeout_s: float = 300.0, stdin: bytes | None = None) -> bytes:
    """One client command that must succeed; its stdout."""
    done = run_tsdb(*arguments, timeout_s=timeout_s, stdin=stdin)
    assert done.returncode == 0, f"tsdb {' '.join(arguments)} -> {done.returncode}\n{done.stderr.decode()[-4000:]}"
    return done.stdout


def tsdb_json(*arguments: str, timeout_s: float = 300.0) -> Any:
    """The JSON that a client command prints last."""
    return json.loads(tsdb_ok(*arguments, "--output", "json", timeout_s=timeout_s).splitlines()[-1])


def wait_for_samples(address: str, samples: int, within_s: float = 60.0) -> None:
    """Wait until a store has applied `samples` samples: a write becomes visible a moment after its answer."""
    give_up_at = time.monotonic() + within_s
    with connect(address) as client:
        while (held := sum(state.samples for state in client.coverage())) < samples:
            assert time.monotonic() < give_up_at, f"{held} of {samples} samples visible within {within_s:g} s"
            time.sleep(0.05)  # Interval of checks of another process. The loop's condition is the claim.


class Role:
    """A long-running `tsdb` role with its own ports, killed at the end of the context. wrapper: a command that becomes
    the role by `exec`."""

    def __init__(
        self,
        scratch: Path,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        wrapper: Sequence[str] = (),
    ) -> None:
        # The ports stay reserved while the process is down, so it comes back at the same addresses.
        self._ports = Ports(2)
        self.grpc, self.http = (f"127.0.0.1:{port}" for port in self._ports.numbers)
        grpc: tuple[str, ...] = () if arguments[0] in WITHOUT_GRPC else ("--grpc", self.grpc)
        self.arguments = [*arguments, *grpc, "--http", self.http]
        self.log_file = scratch / f"{arguments[0]}-{self.grpc.rpartition(':')[2]}.log"
        self._env = {**os.environ, **(env or {})}
        self._command = [*wrapper, *TSDB]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        self._ports.close()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def start(self, *, ready: bool = True) -> None:
        """Start, and wait for readiness unless told not to."""
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen([*self._command, *self.arguments], stdout=log, stderr=log, env=self._env)
        if ready:
            self.wait_ready()

    def kill(self) -> None:
        """SIGKILL: no drain, no flush."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def suspend(self) -> None:
        """Stop the process with SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process with SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def terminate(self, timeout_s: float = 60.0) -> int:
        """SIGTERM and the exit code of the drain."""
        self.process.terminate()
        return self.process.wait(timeout_s)

    def terminate_within(self, drain_s: float) -> int:
        """Check that SIGTERM ends the process after a drain of at most drain_s. Returns its exit code."""
        began = time.monotonic()
        code = self.terminate(drain_s + SLOW_S)
        print(f"SIGTERM ended {self.arguments[0]} within {time.monotonic() - began:.1f} s, exit code {code}")
        return code

    def lines_logged(self) -> int:
        return len(self.log_file.read_text().splitlines())

    def ready(self) -> tuple[int, Any]:
        """Status and JSON of /-/ready. The status is 0 while nothing listens."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/-/ready", timeout=5) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except OSError:
            return 0, None

    def wait_ready(self, within_s: float = READY_WITHIN_S) -> None:
        """Wait until /-/ready answers 200; fails with the process's own log."""
        give_up_at = time.monotonic() + within_s
        status, why = 0, None
        while time.monotonic() < give_up_at:
            status, why = self.ready()
            if status == 200:
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.05)  # Interval of checks of another process. The loop's condition is the claim.
        tail = self.log_file.read_text(errors="replace")[-4000:]
        raise AssertionError(f"not ready within {within_s:g} s: {status} {why}; exit {self.process.poll()}\n{tail}")

    def metrics(self) -> dict[str, float]:
        """/metrics as {name{labels}: value}."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in lines
            if line and not line.startswith("#")
        }


class UnreadyRole(Role):
    """A role whose block begins at the start of the process."""

    def start(self, *, ready: bool = False) -> None:
        super().start(ready=ready)
