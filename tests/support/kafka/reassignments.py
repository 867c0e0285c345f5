"""`tsdb kafka apply` as a process, and data that takes a throttled copy seconds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from confluent_kafka import Producer

from support.servers.processes import TSDB

RECORD_BYTES = 64 * 1024
ENDS_WITHIN_S = 120.0
LOOK_EVERY_S = 0.5


def fill(bootstrap: str, topic: str, partitions: int, bytes_each: int) -> None:
    """Append random bytes, which no codec makes smaller, to each partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for number in range(partitions * bytes_each // RECORD_BYTES):
        producer.produce(topic, os.urandom(RECORD_BYTES), partition=number % partitions)
        producer.poll(0)
    assert producer.flush(ENDS_WITHIN_S) == 0


class Apply:
    """A running `tsdb kafka apply FILE --execute`. A context manager that kills it at the end."""

    def __init__(self, log: Sequence[str], file: Path, *more: str) -> None:
        command = [
            *TSDB,
            "kafka",
            "apply",
            str(file),
            *log,
            "--execute",
            "--measure",
            "200ms",
            *more,
            "--output",
            "json",
        ]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def wait_for(self, seen: Callable[[], bool]) -> None:
        """Wait until `seen`, called a few times a second, or fail when the command ends before."""
        while not seen():
            assert self.runs_for(LOOK_EVERY_S), self._process.communicate()[1]

    def runs_for(self, seconds: float) -> bool:
        """Wait for the end of the command this long. False: it has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def kill(self) -> None:
        """End it by SIGKILL: it cleans nothing up."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> str:
        """Stop it by SIGTERM. Returns its stderr; the exit code must be 1."""
        self._process.send_signal(signal.SIGTERM)
        _, err = self._process.communicate(timeout=ENDS_WITHIN_S)
        assert self._process.returncode == 1, err
        return err

    def finish(self) -> list[dict[str, Any]]:
        """The rows of all steps after its end, which must be a success."""
        out, err = self._process.communicate(timeout=ENDS_WITHIN_S)
        assert self._process.returncode == 0, err
        steps: list[dict[str, Any]] = json.loads(out)["steps"]
        return steps
