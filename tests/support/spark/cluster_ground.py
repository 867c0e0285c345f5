"""Ground of the cluster drills: a broker, a Spark cluster of two hosts, and a log into which samples flow."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stack.kafka import KafkaCluster
from support.data.late_writer import LateWriter
from support.servers.logs import LogFactory
from support.servers.processes import Role, tsdb_ok
from support.spark.live_stage import LiveStage
from support.spark.spark_cluster import HOSTS, SparkCluster
from support.spark.stream_service import on_cluster
from tsdb.model.clock import SystemClock
from tsdb.model.time_set import DEMO

PARTITIONS = 3
EVERY_S = 0.015  # Servers, JVMs and the writer share this machine.


@dataclass(frozen=True)
class Ground:
    """log: arguments of `tsdb` that name the log. access: options of commands that need the time set."""

    broker: KafkaCluster
    cluster: SparkCluster
    logs: LogFactory
    log: Sequence[str]
    access: Sequence[str]
    stage: LiveStage
    folder: Path

    def job(self, *arguments: str) -> list[str]:
        """Arguments of a `tsdb spark` job on the cluster."""
        return on_cluster(self.cluster.master, ("spark", *arguments, *self.access))

    def stream(self, command: str) -> list[str]:
        """Arguments of `pipeline` or `run`. No start has a checkpoint of an earlier one, as on Kubernetes."""
        return self.job(command, "--trigger", "1s")

    def chunker(self) -> Role:
        """A chunker that is not started yet."""
        return Role(self.folder, "chunker", *self.access)

    def report(self, drill: str, detail: str) -> None:
        """Judge `chunks` and print the drill's line."""
        print(f"\n{drill}: {detail}; {self.stage.check()}")


@contextmanager
def running_ground(folder: Path) -> Iterator[Ground]:
    """Everything started, topics made and written to."""
    with KafkaCluster() as broker, SparkCluster(folder) as cluster:
        url, prefix = f"kafka://{broker.bootstrap}", f"d{uuid.uuid4().hex[:12]}."
        log = ("--log", url, "--log-prefix", prefix)
        access = (*log, "--time-set", "demo")
        tsdb_ok("topics", "create", *access, "--partitions", str(PARTITIONS), "--replication", "1")
        with (
            LogFactory(url, prefix) as logs,
            LateWriter(logs.open(), PARTITIONS, SystemClock(), DEMO.window_ms, seed=501, every_s=EVERY_S),
        ):
            yield Ground(broker, cluster, logs, log, access, LiveStage(logs.open()), folder)


@dataclass(frozen=True)
class Fault:
    """strike and mend: take something away, and bring it back away_s later. ends: the most ends of the service."""

    strike: Callable[[Ground], object]
    mend: Callable[[Ground], object]
    away_s: float = 0.0
    ends: int = 0


def kill_executors(ground: Ground) -> None:
    """Kill the executors of one host with SIGKILL. Its worker starts others."""
    found = ground.cluster.executors(HOSTS[0])
    assert found, "no executor to kill"
    for executor in found:
        executor.kill()


def kill_worker(ground: Ground) -> None:
    """SIGKILL to a worker. Its executor sees that and ends."""
    ground.cluster.workers[HOSTS[1]].kill()


def start_worker(ground: Ground) -> None:
    """Start the killed worker again."""
    ground.cluster.workers[HOSTS[1]].start()


def nothing(ground: Ground) -> None:
    """Leave the repair to the cluster."""
