"""A Spark cluster of two hosts on this machine: Spark runs no copy of a task on the host where the task runs already,
which `local[N]` and `local-cluster` have one of.

The master keeps its state in files, so that a restarted master knows its applications. Without them it would have their
executors killed, and no application would get others.
"""

from __future__ import annotations

import socket
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from spark_backfill.session import require_java
from stack.ports import Ports
from stack.process import ServerProcess
from support.servers.logs import wait_until

HOSTS = ("127.0.0.1", "127.0.0.2")  # All of 127.0.0.0/8 is this machine.
STARTED_WITHIN_S = 120.0
_HOME = Path(pyspark.__file__).parent
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class SparkCluster:
    """A master, and a worker with one core on each host. A context manager. master: the URL for a session.

    master_process, workers: processes that tests kill and restart; workers are keyed by host.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = Ports(1)
        (self._port,) = self._ports.numbers
        self.master = f"spark://{HOSTS[0]}:{self._port}"
        self.master_process = self._process("master", _MASTER, "--host", HOSTS[0], "--port", str(self._port))
        self.workers = {host: self._worker(host) for host in HOSTS}

    def __enter__(self) -> Self:
        self.start_master()
        for worker in self.workers.values():
            worker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in (*self.workers.values(), self.master_process):
            process.stop()
        self._ports.close()

    def start_master(self) -> None:
        """Start the master and wait until its port is open."""
        self.master_process.start()
        wait_until(self._answers, STARTED_WITHIN_S)

    def executors(self, host: str) -> list[psutil.Process]:
        """JVMs of the executors on a host."""
        found = psutil.Process(self.workers[host].pid).children(recursive=True)
        return [process for process in found if _is_executor(process)]

    def _worker(self, host: str) -> ServerProcess:
        work = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / host))
        return self._process(host, _WORKER, "--host", host, *work, self.master)

    def _process(self, name: str, main: str, *arguments: str) -> ServerProcess:
        # An executor finds its jars by these; it inherits them from its worker.
        environment = ("env", f"SPARK_HOME={_HOME}", "SPARK_SCALA_VERSION=2.13")
        java = (
            str(require_java()),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dspark.deploy.recoveryMode=FILESYSTEM",
            f"-Dspark.deploy.recoveryDirectory={self._folder / 'recovery'}",
            "-cp",
            f"{_HOME}/jars/*",
        )
        command = (*environment, *java, main, "--webui-port", "0", *arguments)
        return ServerProcess(command, self._folder / f"{name}.log")

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOSTS[0], self._port)) == 0


def _is_executor(process: psutil.Process) -> bool:
    try:
        return _EXECUTOR in process.cmdline()
    except psutil.Error:
        return False  # The process ended meanwhile.
