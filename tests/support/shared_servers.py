"""Shared servers: one broker and one Cassandra node for all processes of a test run, and texts that all need.

The first test that asks starts a server, and the guard of the run ends it. A server costs seconds of CPU to start, and
a fortieth of a core while nobody uses it.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stack.cassandra import CassandraNode, NodeAccess
from stack.kafka import KafkaCluster
from support.drills.leftovers import run_folder

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
