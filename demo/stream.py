"""The demo's stream: the chunk stage on Spark, over the log of a standalone process that has ended."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from demo.standalone import TSDB, DemoFailed

WITHIN_S = 240.0  # On an idle machine a session starts in 10 s, and a window closes 32 s after its start.
END_WITHIN_S = 60.0
JOBS_OFF = ("--merge-late", "off", "--downsample", "off", "--verify", "off")  # `verify` is run by itself afterwards.


class Stream:
    """`tsdb spark run` on two cores, without its jobs, while the context is open. places: options for log and
    history."""

    def __init__(self, places: tuple[str, ...], http: str, scratch: Path) -> None:
        checkpoint = ("--checkpoint", (scratch / "checkpoint").as_uri(), "--trigger", "1s")
        self._command = [*TSDB, "spark", "run", *places, *checkpoint, "--http", http, "--output", "json"]
        self._command += ["--master", "local[2]", *JOBS_OFF]
        self._http = http
        self._log_file = scratch / "stream.log"

    def __enter__(self) -> Stream:
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=log)
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.communicate()

    def wait(self, done: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The first answer of `/-/ready` for which `done` is true. Fails the demo when the stream ends before."""
        give_up_at = time.monotonic() + WITHIN_S
        while not done(ready := self._readiness()):
            if self._process.poll() is not None or time.monotonic() > give_up_at:
                raise DemoFailed(f"the stream did not close the windows:\n{self._log_file.read_text()[-4000:]}")
            time.sleep(0.5)
        return ready

    def stop(self) -> dict[str, Any]:
        """End the stream by SIGTERM and return its summary."""
        self._process.terminate()
        summary, _ = self._process.communicate(timeout=END_WITHIN_S)
        if self._process.returncode:
            raise DemoFailed(f"the stream failed:\n{self._log_file.read_text()[-4000:]}")
        return dict(json.loads(summary))

    def _readiness(self) -> dict[str, Any]:
        """The answer of `/-/ready`; empty while the session starts."""
        try:
            with urllib.request.urlopen(f"http://{self._http}/-/ready", timeout=5) as answer:
                return dict(json.loads(answer.read()))
        except urllib.error.HTTPError as error:
            error.close()
        except OSError:
            pass
        return {}
