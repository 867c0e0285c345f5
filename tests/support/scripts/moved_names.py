"""Servers that move to another address under the same name, with a hosts file for this process alone.

Run by `unshare --map-root-user --mount`. Arguments: the hosts file, and kafka or grpc. Prints for each client after how
many seconds it works again.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from stack.kafka import KafkaCluster
from tsdb.client.channel import open_channel
from tsdb.log.interface import META, Position, TopicPartition
from tsdb.log.open import open_log, open_topics
from tsdb.log.topics import create_topics, topic_specs
from tsdb.model.errors import TsdbError

NAME = "moved.example"
BEFORE, AFTER = "127.0.0.2", "127.0.0.3"
WITHIN_S = 60.0


class Forwarder:
    """Passes connections from one loopback address on to 127.0.0.1, on the same port. `close` cuts them all."""

    def __init__(self, host: str, port: int) -> None:
        self._port = port
        self._listener = socket.create_server((host, port))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for one in [self._listener, *self._open]:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                theirs, _ = self._listener.accept()
                ours = socket.create_connection(("127.0.0.1", self._port))
                self._open += [theirs, ours]
                for source, target in ((theirs, ours), (ours, theirs)):
                    threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


class Everything:
    """GroupListener that reads all from the first record on."""

    def on_assigned(self, committed: Mapping[TopicPartition, Position | None]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(committed, 0)

    def on_revoked(self, partitions: object) -> None:
        """Does nothing: there are no commits."""

    def on_lost(self, partitions: object) -> None:
        """Does nothing: a later poll assigns the partitions again."""


def again(name: str, works: Callable[[], bool]) -> None:
    """Wait until it works, and print after how long."""
    began = time.monotonic()
    while not _holds(works):
        assert time.monotonic() - began < WITHIN_S, f"{name} does not work {WITHIN_S:g} s after the move"
        time.sleep(0.1)
    print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


def _holds(works: Callable[[], bool]) -> bool:
    try:
        return works()
    except (TsdbError, grpc.RpcError):
        return False


def move_kafka(hosts: Path) -> None:
    names = {"advertised.listeners": f"PLAINTEXT://{NAME}:{{port}}"}
    with KafkaCluster(settings=names) as cluster, contextlib.ExitStack() as stack:
        port = int(cluster.bootstrap.rpartition(":")[2])
        first = Forwarder(BEFORE, port)
        url = f"kafka://{NAME}:{port}"
        with open_topics(url) as admin:
            create_topics(admin, topic_specs(1, replication=1))
        log = stack.enter_context(open_log(url))
        reader = stack.enter_context(log.reader({(META, 0): 0}))
        group = stack.enter_context(log.group("moved"))
        group.join([META], Everything())
        seen = {"reader": 0, "member": 0}

        def write() -> bool:
            log.append_sync(META, 0, b"x", key=b"k", timeout_s=5.0)
            return True

        def reads(name: str, poll: Callable[[], list[object]], least: int) -> Callable[[], bool]:
            def look() -> bool:
                seen[name] += sum(len(event.offsets) for event in poll() if hasattr(event, "offsets"))
                return seen[name] >= least

            return look

        polls: dict[str, Callable[[], list[object]]] = {
            "reader": lambda: list(reader.poll(0.5)),
            "member": lambda: list(group.poll(0.5)),
        }
        write()
        for name, poll in polls.items():
            again(f"{name} before", reads(name, poll, 1))
        first.close()
        hosts.write_text(f"127.0.0.1 localhost\n{AFTER} {NAME}\n")
        Forwarder(AFTER, port)
        again("producer", write)
        again("lookup", lambda: log.watermarks(META, [0])[0].high >= 2)
        for name, poll in polls.items():
            again(name, reads(name, poll, 2))
        again("admin", lambda: bool(log.members("moved")))


def move_grpc(hosts: Path) -> None:
    with socket.create_server((BEFORE, 0)) as found:
        port = found.getsockname()[1]
    with _server(BEFORE, port):
        channel = open_channel(f"{NAME}:{port}", None)
        check = health_pb2_grpc.HealthStub(channel).Check

        def works() -> bool:
            check(health_pb2.HealthCheckRequest(), timeout=2.0)
            return True

        again("client before", works)
    hosts.write_text(f"127.0.0.1 localhost\n{AFTER} {NAME}\n")
    with _server(AFTER, port):
        again("client", works)


@contextlib.contextmanager
def _server(host: str, port: int) -> Iterator[None]:
    server = grpc.server(ThreadPoolExecutor(2))
    health_pb2_grpc.add_HealthServicer_to_server(health.HealthServicer(), server)
    server.add_insecure_port(f"{host}:{port}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait()


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(f"127.0.0.1 localhost\n{BEFORE} {NAME}\n")
    subprocess.run(["mount", "--bind", str(file), "/etc/hosts"], check=True)
    {"kafka": move_kafka, "grpc": move_grpc}[sys.argv[2]](file)
