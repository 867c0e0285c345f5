"""Runs the demo's processes: `tsdb standalone` and `tsdb agent`, reached through their ports only."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from tsdb.cli.options.connection import DEFAULT_ADDRESS
from tsdb.cli.page import DEFAULT_PAGE
from tsdb.model.time_set import BRIEF

TSDB = (sys.executable, "-m", "tsdb.cli.main")
READY_WITHIN_S = 200.0  # The first start in a checkout builds the kernels.
PORTS = (20_000, 32_000)
TRIED_MAX = 100
STOPPED_WITHIN_S = 60.0  # `drain_s` is 25.


class DemoFailed(SystemExit):
    """A stage of the demo failed; the message is the output to show."""


def run_tsdb(*arguments: str, stdin: bytes = b"") -> bytes:
    """Run a client command and return its stdout. An error ends the demo with the command's stderr."""
    done = subprocess.run([*TSDB, *arguments], input=stdin, capture_output=True, check=False)
    if done.returncode:
        raise DemoFailed(f"tsdb {' '.join(arguments)} failed:\n{done.stderr.decode()}")
    return done.stdout


def free_addresses() -> tuple[str, str]:
    """Addresses for gRPC and HTTP: the defaults, so that `tsdb` commands reach the demo without an option, or others
    when these are in use. They are below the ephemeral range: no outgoing connection takes one during the restart."""
    pairs = [(DEFAULT_ADDRESS, DEFAULT_PAGE)]
    pairs += [(f"127.0.0.1:{port}", f"127.0.0.1:{port + 1}") for port in random.sample(range(*PORTS, 2), TRIED_MAX)]
    for pair in pairs:
        if all(map(_is_free, pair)):
            return pair
    raise DemoFailed(f"no free ports were found in {PORTS[0]}-{PORTS[1]}")


def _is_free(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # As servers do: a restart must not wait.
        try:
            probe.bind((host, int(port)))
        except OSError:
            return False
    return True


class Standalone:
    """Process `tsdb standalone` over a folder. `kill` and `start` may follow each other."""

    def __init__(self, scratch: Path, options: Sequence[str] = ()) -> None:
        self.grpc, self.http = free_addresses()
        self._scratch = scratch
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Standalone:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def start(self, on_wait: Callable[[str], None] = lambda reason: None) -> float:
        """Start, wait until ready, return the seconds. `on_wait` receives each reason for waiting once."""
        command = [*TSDB, "standalone", "--time-set", BRIEF.name, "--data-dir", str(self._scratch / "data")]
        with (self._scratch / "standalone.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--grpc", self.grpc, "--http", self.http, *self._options], stdout=log, stderr=log
            )
        return self._wait_ready(on_wait)

    def stop(self) -> None:
        """End by SIGTERM and wait: what was accepted is in the log."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=STOPPED_WITHIN_S)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def metric(self, name: str, label: str = "") -> float:
        """Sum of a metric over its labels, or over those lines that have `label`."""
        with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        mine = (line for line in lines if line.startswith((name + " ", name + "{")) and label in line)
        return sum(float(line.rpartition(" ")[2]) for line in mine)

    def _wait_ready(self, on_wait: Callable[[str], None]) -> float:
        started = time.monotonic()
        reported = ""
        while time.monotonic() - started < READY_WITHIN_S:
            reason = self._not_ready()
            if not reason:
                return time.monotonic() - started
            if reason != reported:
                on_wait(reason)
                reported = reason
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.05)
        raise DemoFailed(f"not ready: {reported}\n{(self._scratch / 'standalone.log').read_text()[-4000:]}")

    def _not_ready(self) -> str:
        try:
            with urllib.request.urlopen(f"http://{self.http}/-/ready", timeout=5):
                return ""
        except urllib.error.HTTPError as error:
            with error:
                answer = json.loads(error.read())
            partitions = answer.get("partitions") or {}
            return str(answer.get("reason") or ", ".join(sorted({p["reason"] for p in partitions.values()} - {""})))
        except OSError:
            return "the process is starting"


class Agent:
    """`tsdb agent`, running while the context is open."""

    def __init__(self, address: str, scratch: Path) -> None:
        self._command = [*TSDB, "agent", "--address", address, "--interval", "1s"]
        self._log_file = scratch / "agent.log"

    def __enter__(self) -> Agent:
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait()
