"""Runs one Cassandra node on loopback ports with scratch data."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from stack.maven import CASSANDRA, jars
from stack.ports import Ports
from stack.process import ServerProcess

READY_WITHIN_S = 180.0
JVM = ("-Xms512m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:MaxDirectMemorySize=256m")
EXPORTS = (
    "java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/java.lang.ref java.base/sun.nio.ch "
    "java.management.rmi/com.sun.jmx.remote.internal.rmi java.management/com.sun.jmx.remote.security "
    "java.rmi/sun.rmi.registry java.rmi/sun.rmi.server java.sql/java.sql jdk.unsupported/sun.misc"
)
OPENS = (
    "java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect java.base/java.io java.base/java.nio "
    "java.base/java.util java.base/sun.nio.ch java.base/jdk.internal.loader java.base/jdk.internal.ref "
    "java.base/jdk.internal.reflect java.base/jdk.internal.math java.base/jdk.internal.module "
    "java.base/jdk.internal.util.jar jdk.management/com.sun.management.internal"
)
ACCESS = (
    *(f"--add-exports={package}=ALL-UNNAMED" for package in EXPORTS.split()),
    *(f"--add-opens={package}=ALL-UNNAMED" for package in OPENS.split()),
)
CONFIG = """cluster_name: lab
partitioner: org.apache.cassandra.dht.Murmur3Partitioner
endpoint_snitch: SimpleSnitch
num_tokens: 16
listen_address: {host}
rpc_address: {host}
storage_port: {storage}
native_transport_port: {port}
seed_provider:
  - class_name: org.apache.cassandra.locator.SimpleSeedProvider
    parameters: [{{seeds: "{host}:{storage}"}}]
commitlog_sync: periodic
commitlog_sync_period: 10000ms
commitlog_segment_size: 32MiB
commitlog_total_space: 512MiB
memtable_allocation_type: heap_buffers
memtable_heap_space: 256MiB
concurrent_compactors: 1
auto_snapshot: false
hinted_handoff_enabled: false
disk_access_mode: standard
"""
LOGBACK = """<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %p %c: %m%n</pattern></encoder>
  </appender>
  <root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""
# A native-protocol v4 STARTUP request: version, flags, stream, opcode, then a string map of one entry.
STARTUP_BODY = struct.pack(">H", 1) + b"".join(struct.pack(">H", len(t)) + t for t in (b"CQL_VERSION", b"3.0.0"))
STARTUP = struct.pack(">BBHBI", 0x04, 0, 0, 0x01, len(STARTUP_BODY)) + STARTUP_BODY
READY_OPCODE, AUTHENTICATE_OPCODE = 0x02, 0x03


@dataclass(frozen=True)
class NodeAccess:
    """Access to a running node, also for a process that did not start it. folder: the data of the node."""

    host: str
    port: int
    jmx_port: int
    folder: str

    def flush(self) -> None:
        """Write memtables to files. Raises RuntimeError when that fails."""
        self._tool("flush")

    def estimate_sizes(self) -> None:
        """Refresh the size estimates, as the node does every few minutes. Raises RuntimeError when that fails."""
        self._tool("refreshsizeestimates")

    def data_bytes(self, keyspace: str) -> dict[str, int]:
        """Bytes of the files of each table in a keyspace, with indexes and filters."""
        tables = (Path(self.folder) / "data" / "data" / keyspace).iterdir()
        return {
            table.name.rsplit("-", 1)[0]: sum(file.stat().st_size for file in table.iterdir() if file.is_file())
            for table in tables
        }

    def _tool(self, command: str) -> None:
        # The tool writes its command history into the home folder.
        home = f"-Duser.home={self.folder}"
        main = ["-cp", f"{jars(CASSANDRA)}/*", "org.apache.cassandra.tools.NodeTool"]
        tool = ["java", *ACCESS, home, *main, "-p", str(self.jmx_port), command]
        done = subprocess.run(tool, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{command} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


class CassandraNode:
    """A Cassandra node; a context manager. folder: the data; without it, a temporary folder that `close` removes.

    settings: further lines of cassandra.yaml.

    """

    def __init__(self, *, folder: Path | None = None, detached: bool = False, settings: str = "") -> None:
        self._settings = settings
        self._temporary = folder is None
        self._folder = folder or Path(tempfile.mkdtemp(prefix="cassandra-stack-"))
        self._detached = detached
        self._ports: Ports | None = None
        self._process: ServerProcess | None = None
        self.host = "127.0.0.1"
        self.port = 0
        self._jmx = 0
        self._storage = 0

    def __enter__(self) -> CassandraNode:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def access(self) -> NodeAccess:
        """Access for all users of the node. Valid after `start`."""
        return NodeAccess(self.host, self.port, self._jmx, str(self._folder))

    @property
    def process(self) -> ServerProcess:
        """The server process, for tests that kill, signal or restart it."""
        assert self._process is not None, "not started"
        return self._process

    def start(self) -> None:
        """Start and wait until the node answers."""
        self._ports = Ports(3)
        storage, self.port, self._jmx = self._ports.numbers
        shutil.rmtree(self._folder, ignore_errors=True)
        (self._folder / "triggers").mkdir(parents=True)
        self._storage = storage
        self._configure()
        (self._folder / "logback.xml").write_text(LOGBACK)
        self._process = ServerProcess(self._command(), self._folder / "output.log", detached=self._detached)
        self._process.start()
        try:
            self.wait_ready()
        except BaseException:
            self.close()
            raise

    def wait_ready(self, within_s: float = READY_WITHIN_S) -> None:
        """Wait until the node answers STARTUP with READY, or asks for a user.

        Raises RuntimeError with the end of the server's output.
        """
        give_up_at = time.monotonic() + within_s
        while not self._answers():
            if not self.process.running or time.monotonic() > give_up_at:
                raise RuntimeError(f"Cassandra does not answer:\n{self.process.tail()}")
            time.sleep(0.2)

    def move(self, host: str) -> None:
        """Stop the node and start it with its data at another loopback address, on the same ports. Waits until it
        answers there."""
        self.process.stop()
        self.host = host
        self._configure()
        self.process.start()
        self.wait_ready()

    def close(self) -> None:
        """Kill the node and remove its temporary data."""
        if self._process is not None:
            self._process.kill()
        if self._ports is not None:
            self._ports.close()
        if self._temporary:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _configure(self) -> None:
        text = CONFIG.format(host=self.host, storage=self._storage, port=self.port)
        (self._folder / "cassandra.yaml").write_text(text + self._settings)

    def _command(self) -> list[str]:
        folder = jars(CASSANDRA)
        (agent,) = folder.glob("jamm-*.jar")
        properties = {
            "cassandra.config": (self._folder / "cassandra.yaml").as_uri(),
            "cassandra.storagedir": str(self._folder / "data"),
            "cassandra.triggers_dir": str(self._folder / "triggers"),
            "cassandra.jmx.local.port": str(self._jmx),
            "logback.configurationFile": str(self._folder / "logback.xml"),
            "cassandra-foreground": "yes",
            "cassandra.skip_wait_for_gossip_to_settle": "0",
            "cassandra.ring_delay_ms": "0",
            "jdk.attach.allowAttachSelf": "true",
            "io.netty.tryReflectionSetAccessible": "true",
        }
        return [
            "java",
            *JVM,
            f"-javaagent:{agent}",
            *ACCESS,
            *(f"-D{key}={value}" for key, value in properties.items()),
            "-cp",
            f"{folder}/*",
            "org.apache.cassandra.service.CassandraDaemon",
        ]

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=1.0) as connection:
                connection.settimeout(2.0)
                connection.sendall(STARTUP)
                header = connection.recv(9)
        except OSError:
            return False
        return len(header) == 9 and header[4] in (READY_OPCODE, AUTHENTICATE_OPCODE)
