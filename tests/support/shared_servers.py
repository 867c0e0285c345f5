"""Shared servers: one broker and one Cassandra node for all processes of a test run, servers for a group of files, and
texts that all processes need.

The first test that asks starts a server. The guard of the run ends those of all processes. A server costs seconds of
CPU to start, and a fortieth of a core while nobody uses it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from stack.cassandra import CassandraNode, NodeAccess
from stack.kafka import KafkaCluster
from support.drills.leftovers import run_folder

Server = TypeVar("Server")
# Session timeout of groups by KIP-848. Otherwise the partitions of a killed member would wait for 45 s.
SHORT_SESSIONS = {
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
_started_here: list[object] = []  # Python warns of the process of a server that nobody refers to.


@dataclass(frozen=True)
class SharedBroker:
    """A broker that other tests use at the same time. A test uses a separate topic prefix, and never stops it."""

    bootstrap: str


def shared_broker(settings: Mapping[str, str]) -> SharedBroker:
    """settings: further lines of server.properties; the same at every call."""

    def start(folder: Path) -> dict[str, Any]:
        cluster = KafkaCluster(folder=folder, settings=settings, detached=True)
        cluster.start()
        _started_here.append(cluster)
        return {"bootstrap": cluster.bootstrap}

    return SharedBroker(**_started("kafka", start))


def shared_node() -> NodeAccess:
    """A test uses a separate keyspace, or that of `contract_history`, and never stops the node."""

    def start(folder: Path) -> dict[str, Any]:
        node = CassandraNode(folder=folder, detached=True)
        node.start()
        _started_here.append(node)
        return dataclasses.asdict(node.access)

    return NodeAccess(**_started("cassandra", start))


def contract_history(node: NodeAccess | CassandraNode) -> str:
    """URL of a keyspace for the tests of this process, each of which empties it."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
    return f"cassandra://{node.host}:{node.port}/contract_{worker}"


class GroupServers:
    """Servers that no other process uses, by name, until `close`. Files of a group run one after another in a process,
    and each leaves a server as it found it.
    """

    def __init__(self) -> None:
        self._running: dict[str, Any] = {}
        self._stack = ExitStack()

    def server(self, name: str, start: Callable[[Path], AbstractContextManager[Server]]) -> Server:
        """The running server of this name, or a started one. start: gets a new folder for its data."""
        if name not in self._running:
            made = TemporaryDirectory(prefix="s", dir=run_folder(), ignore_cleanup_errors=True)
            folder = Path(self._stack.enter_context(made))
            self._running[name] = self._stack.enter_context(start(folder))
        found: Server = self._running[name]
        return found

    def close(self) -> None:
        """End all, the newest first."""
        self._running.clear()
        self._stack.close()


def once_a_run(name: str, make: Callable[[], str]) -> str:
    """A text that the first process of a run makes, and the others read. name: the name of a file in the folder of the
    run.
    """
    file = run_folder() / name
    with file.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Another process waits until the text is there.
        if not file.exists():
            file.write_text(make())
    return file.read_text()


def _started(name: str, start: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    access: dict[str, Any] = json.loads(once_a_run(f"{name}.json", lambda: json.dumps(start(run_folder() / name))))
    return access
