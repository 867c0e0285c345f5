"""Runs Kafka brokers in KRaft mode, each both broker and controller, on loopback ports with scratch data."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from stack.maven import KAFKA, jars
from stack.ports import Ports
from stack.process import ServerProcess, shared_classes

READY_WITHIN_S = 120.0
START_TRIES = 3
# Brokers run for seconds or minutes here. The compiler C1 alone halves the CPU of a start, and saves a third of the CPU
# at a light load.
C1_ALONE = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
FEATURES = "bootstrap.checkpoint"  # A file of the data folder.
HEAP_MB = {1: 512}  # Replication factor by number of brokers. Benchmarks use a single broker.
HEAP_MB_SHARED = 320

PROPERTIES = """process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={folder}/data
num.partitions=1
default.replication.factor={replication}
offsets.topic.num.partitions=1
offsets.topic.replication.factor={replication}
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor={replication}
transaction.state.log.min.isr={in_sync}
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor={replication}
share.coordinator.state.topic.min.isr={in_sync}
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.retention.ms=-1
log.retention.check.interval.ms=1000
log.cleaner.backoff.ms=500
log.segment.delete.delay.ms=1000
# No empty records twice a second: they are four tenths of the CPU of an idle broker.
metadata.max.idle.interval.ms=0
"""
LOG4J = """<Configuration status="WARN">
  <Appenders><Console name="out"><PatternLayout pattern="%d %p %c: %m%n"/></Console></Appenders>
  <Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


class KafkaCluster:
    """One or three brokers. A context manager. Brokers are numbered from 0 and keep ports and data over restarts.

    folder: folder of the data; without one, a temporary folder that `close` removes. settings: further lines of
    server.properties, with {node} for the id of a broker and {port} for its port. client: settings of the clients here,
    where those lines ask for users. detached: the brokers outlive this process. classes: a JVM option in place of the
    archive of classes.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        folder: Path | None = None,
        settings: Mapping[str, str] | None = None,
        client: Mapping[str, str] | None = None,
        detached: bool = False,
        classes: str = "",
    ) -> None:
        self._count = brokers
        self._settings = dict(settings or {})
        self._client = dict(client or {})
        self._detached = detached
        self._classes = classes
        self._jvm: list[str] = []  # Options of all JVMs of this cluster, kept over restarts.
        self._temporary = folder is None
        self._folder = folder or Path(tempfile.mkdtemp(prefix="kafka-stack-"))
        self._ports: Ports | None = None
        self._brokers: list[ServerProcess] = []
        self.bootstrap = ""

    def __enter__(self) -> KafkaCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Process ids of the brokers, by number."""
        return [broker.pid for broker in self._brokers]

    def start(self) -> None:
        """Start all brokers and wait until they answer. Retries with other ports when one was taken meanwhile."""
        for attempt in range(1, START_TRIES + 1):
            self._prepare()
            for broker in self._brokers:
                broker.start()
            try:
                self.wait_ready()
                return
            except RuntimeError as error:
                self._release()
                if attempt == START_TRIES or "Address already in use" not in str(error):
                    raise

    def close(self) -> None:
        """Kill the brokers and remove their temporary data."""
        self._release()
        if self._temporary:
            shutil.rmtree(self._folder, ignore_errors=True)

    def start_broker(self, number: int) -> None:
        """Restart a stopped or killed broker. Does not wait."""
        self._brokers[number].start()

    def stop_broker(self, number: int) -> bool:
        """Stop a broker by SIGTERM, a controlled shutdown. Returns whether it ended before it had to be killed."""
        return self._brokers[number].stop()

    def kill_broker(self, number: int) -> None:
        self._brokers[number].kill()

    def suspend_broker(self, number: int) -> None:
        """Suspend a broker by SIGSTOP: connections stay open, but no request is answered."""
        self._brokers[number].signal(signal.SIGSTOP)

    def resume_broker(self, number: int) -> None:
        self._brokers[number].signal(signal.SIGCONT)

    def leader(self, topic: str, partition: int) -> int:
        """The number of the broker that leads a partition. Raises RuntimeError when none does for 60 s.

        A broker may answer before it has heard of a new topic or of a new leader.
        """
        admin = self._admin()
        give_up_at = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < give_up_at:
            found = admin.list_topics(topic, timeout=READY_WITHIN_S).topics[topic].partitions.get(partition)
            if found is not None and found.leader >= 1:
                return int(found.leader) - 1
            time.sleep(0.1)
        raise RuntimeError(f"{topic}, partition {partition}: no broker leads it after {READY_WITHIN_S} s")

    def wait_ready(self, within_s: float = READY_WITHIN_S) -> None:
        """Wait until every running broker answers and all running replicas are in sync. Raises RuntimeError if not."""
        give_up_at = time.monotonic() + within_s
        admin = self._admin()
        while True:
            running = [broker for broker in self._brokers if broker.running]
            try:
                if running and _is_whole(admin, len(running)):
                    return
            except KafkaException:
                pass  # Not ready yet; the loop has a time limit.
            died = len(running) < len(self._brokers) and len(running) == 0
            if died or time.monotonic() > give_up_at:
                raise RuntimeError("Kafka does not answer:\n" + "\n".join(broker.tail() for broker in self._brokers))
            time.sleep(0.1)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, **self._client})

    def _prepare(self) -> None:
        self._jvm = [*C1_ALONE, self._classes or shared_classes(KAFKA, _record_classes)]
        self._ports = Ports(2 * self._count)
        ports = self._ports.numbers[: self._count]
        controllers = self._ports.numbers[self._count :]
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in enumerate(controllers, 1))
        cluster_id = _new_id()
        self._brokers = [
            self._broker(node, port, controller, voters, cluster_id)
            for node, (port, controller) in enumerate(zip(ports, controllers, strict=True), 1)
        ]

    def _broker(self, node: int, port: int, controller: int, voters: str, cluster_id: str) -> ServerProcess:
        folder = self._folder / f"broker-{node}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        properties = folder / "server.properties"
        text = PROPERTIES.format(
            node=node,
            voters=voters,
            port=port,
            controller=controller,
            folder=folder,
            replication=min(3, self._count),
            in_sync=2 if self._count >= 3 else 1,
        )
        more = "".join(f"{key}={value.format(node=node, port=port)}\n" for key, value in self._settings.items())
        properties.write_text(text + more)
        (folder / "log4j2.xml").write_text(LOG4J)
        class_path = f"{jars(KAFKA)}/*"
        self._format(class_path, cluster_id, node, properties, folder / "log4j2.xml")
        heap_mb = HEAP_MB.get(self._count, HEAP_MB_SHARED)
        java = [
            "java",
            f"-Xms{heap_mb}m",
            f"-Xmx{heap_mb}m",
            *self._jvm,
            f"-Dlog4j2.configurationFile={folder / 'log4j2.xml'}",
            "-cp",
            class_path,
            "kafka.Kafka",
            str(properties),
        ]
        return ServerProcess(java, folder / "output.log", detached=self._detached)

    def _format(self, class_path: str, cluster_id: str, node: int, properties: Path, log4j: Path) -> None:
        """Make the data folder of a broker. Kafka's tool takes a second of CPU, so it runs once for a set of jars: the
        features that it writes are those of the release, and the rest is a file of four lines."""
        data = properties.parent / "data"
        folder = jars(KAFKA)
        features = folder.with_name(f"{folder.name}.checkpoint")
        if features.exists():
            data.mkdir()
            shutil.copyfile(features, data / FEATURES)
            (data / "meta.properties").write_text(
                f"version=1\ncluster.id={cluster_id}\nnode.id={node}\ndirectory.id={_new_id()}\n"
            )
            return
        # One argument with `=`, since a cluster id may begin with a dash.
        tool = ["java", *self._jvm, f"-Dlog4j2.configurationFile={log4j}", "-cp", class_path]
        command = [*tool, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "-c", str(properties)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise RuntimeError(f"formatting {properties.parent} failed:\n{done.stdout}{done.stderr}")
        scratch = folder.with_name(f"{features.name}.{os.getpid()}")
        shutil.copyfile(data / FEATURES, scratch)
        scratch.rename(features)

    def _release(self) -> None:
        for broker in self._brokers:
            broker.kill()
        if self._ports is not None:
            self._ports.close()


def _new_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _is_whole(admin: AdminClient, running: int) -> bool:
    # While a restarted broker is not in sync, the next injected fault would be a second one.
    cluster = admin.list_topics(timeout=1.0)
    partitions = [one for topic in cluster.topics.values() for one in topic.partitions.values()]
    return len(cluster.brokers) >= running and all(
        one.leader != -1 and len(one.isrs) >= min(running, len(one.replicas)) for one in partitions
    )


def _record_classes(option: str) -> bool:
    with KafkaCluster(classes=option) as cluster:
        return cluster.stop_broker(0)
