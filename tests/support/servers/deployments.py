"""The system as its users run it: a gateway to write to and a store to read from, over either log."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.servers.processes import Role
from tsdb.client import Client, connect
from tsdb.log import topics
from tsdb.log.meta import ensure_meta
from tsdb.log.open import open_log, open_topics
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import PRODUCTION, TimeSet

PARTITIONS = 3
TIMEOUT_S = 60.0  # Timeout of clients. It outlasts a restart with its replay on a busy machine.


@dataclass(frozen=True)
class Deployment:
    """For the embedded log gateway and store are one process. `log`: the arguments that name the log and its topics."""

    gateway: Role
    store: Role
    log: Sequence[str]

    def writer(self) -> Client:
        """A client of the gateway."""
        return connect(self.gateway.grpc, timeout_s=TIMEOUT_S)

    def reader(self) -> Client:
        """A client of the store."""
        return connect(self.store.grpc, timeout_s=TIMEOUT_S)


@contextlib.contextmanager
def embedded(scratch: Path, *arguments: str) -> Iterator[Deployment]:
    """`tsdb standalone` in a new folder."""
    data = str(scratch / f"data-{uuid.uuid4().hex[:8]}")
    with Role(scratch, "standalone", "--data-dir", data, *arguments) as role:
        yield Deployment(role, role, ())


@contextlib.contextmanager
def on_kafka(
    scratch: Path, bootstrap: str, *, replication: int = 1, gateway: Sequence[str] = (), store: Sequence[str] = ()
) -> Iterator[Deployment]:
    """A gateway and a store, each with its flags, over new topics."""
    log = create_topics(bootstrap, replication=replication)
    made = Deployment(Role(scratch, "gateway", *log, *gateway), Role(scratch, "store", *log, *store), log)
    with contextlib.ExitStack() as stack:
        for role in (made.gateway, made.store):
            stack.push(role)
            role.start(ready=False)
        for role in (made.gateway, made.store):
            role.wait_ready()
        yield made


def create_topics(
    bootstrap: str, *, replication: int = 1, partitions: int = PARTITIONS, time_set: TimeSet = PRODUCTION
) -> Sequence[str]:
    """Create topics under a new prefix, as `tsdb topics create` does. Returns the arguments that name them."""
    url, prefix = f"kafka://{bootstrap}", f"e{uuid.uuid4().hex[:12]}."
    with open_topics(url, prefix=prefix) as admin:
        topics.create_topics(admin, topics.topic_specs(partitions, replication=replication))
    with open_log(url, prefix=prefix) as log:
        ensure_meta(log, MetaSettings(partitions, time_set=time_set))
    return ("--log", url, "--log-prefix", prefix)
