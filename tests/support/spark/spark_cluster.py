"""A Spark cluster of two hosts on this machine: Spark runs no copy of a task on the host where the task runs already,
which `local[N]` and `local-cluster` have one of."""

from __future__ import annotations

import socket
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from spark_backfill.session import require_java
from stack.ports import Ports
from stack.process import ServerProcess
from support.servers.logs import wait_until

HOSTS = ("127.0.0.1", "127.0.0.2")  # All of 127.0.0.0/8 is this machine.
STARTED_WITHIN_S = 120.0
_HOME = Path(pyspark.__file__).parent
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


class SparkCluster:
    """A master, and a worker with one core on each host. A context manager. master: what a session is started with."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ports = Ports(1)
        (self._port,) = self._ports.numbers
        self.master = f"spark://{HOSTS[0]}:{self._port}"
        self._processes = [self._process("master", _MASTER, "--host", HOSTS[0], "--port", str(self._port))]
        for host in HOSTS:
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / host))
            self._processes.append(self._process(host, _WORKER, "--host", host, *work, self.master))

    def __enter__(self) -> Self:
        master, *workers = self._processes
        master.start()
        wait_until(self._answers, STARTED_WITHIN_S)
        for worker in workers:
            worker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.stop()
        self._ports.close()

    def _process(self, name: str, main: str, *arguments: str) -> ServerProcess:
        # An executor finds its jars by these; it inherits them from its worker.
        environment = ("env", f"SPARK_HOME={_HOME}", "SPARK_SCALA_VERSION=2.13")
        java = (
            str(require_java()),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-cp",
            f"{_HOME}/jars/*",
        )
        command = (*environment, *java, main, "--webui-port", "0", *arguments)
        return ServerProcess(command, self._folder / f"{name}.log")

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOSTS[0], self._port)) == 0
