"""The demo's Spark stage: the stream closes windows in place of the chunker, and `verify` compares all chunks with the
log. It needs PySpark and a Java.

Its stream runs the chunk stage on Spark, over the log of a standalone process that has ended.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from spark_backfill.session import require_java, require_pyspark
from tsdb.cli.demo.panel import time_of
from tsdb.cli.demo.standalone import TSDB, DemoFailed, Standalone, run_tsdb
from tsdb.model.errors import ConfigMismatch
from tsdb.model.time_set import BRIEF
from tsdb.model.window import ceil_to

LOADED_WITHIN_S = 120.0

WITHIN_S = 240.0  # An idle machine starts a session in 10 s, and a window closes 22 s after its start.
END_WITHIN_S = 60.0
JOBS_OFF = ("--merge-late", "off", "--downsample", "off", "--verify", "off")  # `verify` is run by itself afterwards.


def show_spark(console: Console, server: Standalone, scratch: Path, started_ms: int) -> bool:
    """Hand the chunk stage to Spark and back, then verify: True when no chunk is missing, differing or extra.

    Where Spark cannot run, the stage prints the reason and returns True.
    """
    console.rule("Spark closes windows, in place of the chunker")
    try:
        require_pyspark()
        require_java()
    except ConfigMismatch as error:
        # A name such as kafka-tsdb[spark] is no markup.
        console.print(f"no Spark here, so this is left out: {error.message}", markup=False)
        return True
    data_dir = scratch / "data"
    urls = ("--log", f"sqlite:///{data_dir}/log.sqlite", "--history", f"sqlite:///{data_dir}/history.sqlite")
    places = (*urls, "--time-set", BRIEF.name)
    end_ms = _hand_over(console, server, places, scratch)
    return _verify(console, places, ceil_to(started_ms, BRIEF.window_ms), end_ms)


def _hand_over(console: Console, server: Standalone, places: tuple[str, ...], scratch: Path) -> int:
    """Stop the process, let the stream close every window with samples, start the process again and let it load them.

    Returns the end of the last window, in ms since the epoch.
    """
    server.stop()
    console.print("tsdb standalone has stopped: an embedded log has one writer at a time")
    end_ms = ceil_to(time.time_ns() // 1_000_000, BRIEF.window_ms)
    with Stream(places, server.http, scratch) as stream:
        began_ms = min(_emitted(stream.wait(_emitted)).values())
        console.print(f"tsdb spark run: continues at {time_of(began_ms)}, where the chunker stopped")
        stream.wait(lambda ready: min(_emitted(ready).values(), default=0) >= end_ms)
        summary = stream.stop()
    chunks = summary["base_chunks"] + summary["late_chunks"]
    console.print(f"Spark closed the windows up to {time_of(end_ms)}: {chunks} chunks")
    seconds = server.start()
    console.print(f"tsdb standalone: ready in {seconds:.1f} s; its chunker continues where Spark stopped")
    _wait_loaded(server, end_ms)
    return end_ms


def _wait_loaded(server: Standalone, end_ms: int) -> None:
    """Wait until history has every window that ends by `end_ms`."""
    give_up_at = time.monotonic() + LOADED_WITHIN_S
    while min(_loaded(server).values(), default=0) < end_ms:
        if time.monotonic() > give_up_at:
            raise DemoFailed(f"history has no chunks up to {time_of(end_ms)}: {_loaded(server)}")
        time.sleep(0.5)


def _verify(console: Console, places: tuple[str, ...], start_ms: int, end_ms: int) -> bool:
    console.rule("Spark: does the log give the chunks that are there, and are they in history?")
    span = ("--from", str(start_ms), "--to", str(end_ms))
    report = json.loads(run_tsdb("spark", "verify", *places, *span, "--master", "local[2]", "--output", "json"))
    for name, figure in report.items():
        if figure and name != "rows":
            console.print(f"  {name}: {figure}")
    verdict = "[green]nothing is missing, differing or extra[/]" if report["ok"] else "[red]they differ[/]"
    windows = (end_ms - start_ms) // BRIEF.window_ms
    console.print(f"{windows} windows of {BRIEF.window_ms // 1000} s, of both engines: {verdict}")
    return bool(report["ok"])


def _emitted(ready: dict[str, Any]) -> dict[int, int]:
    """Partition -> end of the last window that the stream has closed; empty until it has begun with every partition."""
    ends = {int(number): state["emitted_through_ms"] for number, state in (ready.get("partitions") or {}).items()}
    return {} if None in ends.values() else ends


def _loaded(server: Standalone) -> dict[int, int]:
    """Partition -> end of the last window that history has."""
    history = json.loads(run_tsdb("status", "--address", server.grpc, "--output", "json"))["history"]
    return {int(state["partition"]): int(state["emitted_through_ms"]) for state in history}


class Stream:
    """Runs `tsdb spark run` without jobs, on two cores, while the context is open. places: the options of log and
    history.
    """

    def __init__(self, places: tuple[str, ...], http: str, scratch: Path) -> None:
        self._command = [*TSDB, "spark", "run", *places, "--trigger", "1s", "--http", http, "--output", "json"]
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
