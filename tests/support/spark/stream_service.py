"""The chunk stage on a Spark cluster as a supervisor runs it: started again a moment after every end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from stack.ports import Ports
from support.servers.logs import wait_until
from support.spark.spark import ROOT

AGAIN_AFTER_S = 1.0
ENDS_WITHIN_S = 90.0
WATCH_S = 0.1
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
MAIN = str(ROOT / "deploy" / "spark" / "main.py")
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CLUSTER_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.driver.extraJavaOptions": _JAVA,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": _JAVA,
    "spark.executorEnv.PYTHONPATH": str(ROOT),
    # Every machine of this cluster has the package, so the daemon finds its module.
    "spark.python.daemon.module": "spark_backfill.worker_daemon",
    "spark.ui.enabled": "false",
}


@dataclass(frozen=True, slots=True)
class End:
    """An end of the process. at, ran_s: monotonic."""

    code: int
    at: float
    ran_s: float


def on_cluster(master: str, arguments: Sequence[str]) -> list[str]:
    """Arguments of a `tsdb spark` job with those that name the cluster."""
    return [*arguments, "--master", master, *_conf()]


def by_submit(master: str, arguments: Sequence[str]) -> list[str]:
    """Command of spark-submit with the same arguments. The driver's Python is a child of its JVM."""
    return [SUBMIT, "--master", master, *_conf(), MAIN, *arguments]


class StreamService:
    """A context manager. The process is in a separate process group and session.

    command: without --http. ends: every end, the oldest first.
    """

    def __init__(self, command: Sequence[str], folder: Path, *, restart: bool = True) -> None:
        self._ports = Ports(1)
        self.http = f"127.0.0.1:{self._ports.numbers[0]}"
        self._command = [*command, "--http", self.http, "--output", "json"]
        self._restart = restart
        self.out_file, self.err_file = folder / "out.log", folder / "err.log"
        folder.mkdir(parents=True, exist_ok=True)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.ends: list[End] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self._ports.close()

    @property
    def running(self) -> bool:
        """Whether it is supervised now."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def pid(self) -> int:
        """The process that runs now, or ran last."""
        assert self._process is not None, "never started"
        return self._process.pid

    def start(self) -> None:
        """Start the process, and do not wait until it is ready."""
        assert not self.running, "already running"
        self._stopping.clear()
        began = self._begin()
        self._thread = threading.Thread(target=self._supervise, args=(began,), name="stream-service", daemon=True)
        self._thread.start()

    def kill(self, name: str) -> None:
        """Kill the driver's processes whose names contain this text with SIGKILL. An empty text means all of them."""
        killed = 0
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                if name in process.name():
                    process.kill()
                    killed += 1
        assert killed, f"no process {name} to kill"

    def processes(self) -> list[psutil.Process]:
        """Driver, JVM and planner: the process and all that it started."""
        driver = psutil.Process(self.pid)
        return [driver, *driver.children(recursive=True)]

    def terminate(self, within_s: float = ENDS_WITHIN_S) -> End:
        """SIGTERM to the process group, and no restart."""
        return self.end(signal.SIGTERM, within_s)

    def end(self, number: signal.Signals, within_s: float = ENDS_WITHIN_S) -> End:
        """Signal the process group, wait for the end, and do not start again."""
        before = len(self.ends)
        self._stopping.set()
        os.killpg(self.pid, number)
        wait_until(lambda: len(self.ends) > before, within_s, describe=self.tail)
        return self.ends[-1]

    def close(self) -> None:
        """Kill driver, JVM and planner, and do not start them again."""
        self._stopping.set()
        if self.running:
            with contextlib.suppress(psutil.NoSuchProcess, AssertionError):
                self.kill("")
        if self._thread is not None:
            self._thread.join(ENDS_WITHIN_S)

    def wait_end(self, within_s: float) -> End:
        """Wait for the next end by itself."""
        before = len(self.ends)
        wait_until(lambda: len(self.ends) > before, within_s, describe=self.tail)
        return self.ends[-1]

    def metric(self, name: str) -> float | None:
        """A value of /metrics; None while nothing listens or without the metric."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            return None
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else None

    def ready(self) -> int:
        """Status of /-/ready; 0 while nothing listens."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/-/ready", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def tail(self) -> str:
        """The end of its stderr."""
        return self.err_file.read_text(errors="replace")[-4000:]

    def _begin(self) -> float:
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        with self.out_file.open("ab") as out, self.err_file.open("ab") as err:
            self._process = subprocess.Popen(
                self._command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=environment, start_new_session=True
            )
        return time.monotonic()

    def _supervise(self, began: float) -> None:
        while True:
            assert self._process is not None
            code = self._process.wait()
            now = time.monotonic()
            self.ends.append(End(code, now, now - began))
            if not self._restart or self._stopping.wait(AGAIN_AFTER_S):
                return
            began = self._begin()


def _conf() -> list[str]:
    return [word for key, value in CLUSTER_CONF.items() for word in ("--conf", f"{key}={value}")]
