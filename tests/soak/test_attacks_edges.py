"""Attacks the promise that one client never harms another, at the ports and at size: 1,000 connections, every bomb.

Seen before there were bounds: 512 idle connections failed all probes for 45 s, 64 gzip requests of 20 KB took 1.5 GB,
16 requests of empty labels 2.4 GB, and a process without file descriptors wrote 66,000 log lines a minute.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.drills.edge_attackers import Bombs, http_bomb_kinds
from support.drills.edge_drills import (
    bombs,
    crowd,
    crowds_of,
    ends_in_time,
    ends_without_descriptors,
    kinds_of,
    no_descriptors,
)
from support.servers.deployments import embedded, on_kafka
from support.servers.processes import Role, tsdb_ok
from support.shared_servers import SharedBroker

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

CONNECTIONS = 1_000
CALLS = 100
BOMBS = 64
# Connections on each port of a process with 200 descriptors. Each connects again as soon as it is closed.
STRANGERS = 300


@dataclass(frozen=True)
class Cluster:
    """A gateway, a store, and a querier over it. log: the arguments that name their log."""

    log: Sequence[str]
    gateway: Role
    store: Role
    querier: Role


@pytest.fixture(scope="module")
def cluster(kafka: SharedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    scratch = tmp_path_factory.mktemp("edges")
    with ExitStack() as stack:
        made = stack.enter_context(on_kafka(scratch, kafka.bootstrap))
        querier = stack.enter_context(Role(scratch, "querier", *made.log, "--stores", made.store.grpc))
        yield Cluster(made.log, made.gateway, made.store, querier)


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Role]:
    with embedded(tmp_path_factory.mktemp("edges")) as running:
        yield running.store


def test_a_thousand_connections_to_each_port_harm_nobody(cluster: Cluster) -> None:
    crowd(cluster.gateway, cluster.store, connections=CONNECTIONS, calls=CALLS)
    crowd(cluster.gateway, cluster.querier, connections=CONNECTIONS, calls=CALLS)


def test_a_thousand_connections_to_one_process_harm_nobody(standalone: Role) -> None:
    crowd(standalone, standalone, connections=CONNECTIONS, calls=CALLS)


def test_bombs_on_the_gateway_harm_nobody(cluster: Cluster) -> None:
    bombs(cluster.gateway, cluster.store, kinds=kinds_of(write=True), target=cluster.gateway, count=BOMBS, calls=CALLS)


@pytest.mark.parametrize("role", ["store", "querier"])
def test_bombs_on_a_reader_harm_nobody(cluster: Cluster, role: str) -> None:
    reader = getattr(cluster, role)
    bombs(cluster.gateway, reader, kinds=kinds_of(write=False), target=reader, count=BOMBS, calls=CALLS)


@pytest.mark.parametrize("role", ["chunker", "loader"])
def test_bombs_on_the_http_port_of_a_role_without_grpc_harm_nobody(cluster: Cluster, tmp_path: Path, role: str) -> None:
    history = f"sqlite:///{tmp_path}/history.db"
    tsdb_ok("history", "create", *cluster.log, "--history", history)
    past = ("--history", history) if role == "loader" else ()
    with Role(tmp_path, role, *cluster.log, *past) as target:
        bombs(cluster.gateway, cluster.store, kinds=http_bomb_kinds(), target=target, count=BOMBS, calls=CALLS)
        ends_in_time(target, [Bombs(target.http, *http_bomb_kinds()[0])])


def test_bombs_on_one_process_harm_nobody(standalone: Role, tmp_path: Path) -> None:
    kinds = [*kinds_of(write=True), *kinds_of(write=False)[:6]]  # The kinds for services and HTTP are the same.
    with embedded(tmp_path) as control:
        bombs(
            standalone,
            standalone,
            kinds=kinds,
            target=standalone,
            count=BOMBS,
            calls=CALLS,
            control=control.store,
        )


def test_without_file_descriptors_probes_and_clients_go_on(standalone: Role) -> None:
    no_descriptors(standalone, connections=STRANGERS, calls=CALLS)


def test_sigterm_ends_in_time_without_file_descriptors(standalone: Role) -> None:
    ends_without_descriptors(standalone, connections=STRANGERS)
    standalone.start()


def test_sigterm_ends_in_time_in_the_middle_of_attacks(cluster: Cluster, standalone: Role) -> None:
    for role in (standalone, cluster.querier, cluster.store, cluster.gateway):
        ends_in_time(role, crowds_of(role, CONNECTIONS))
        role.start()
        write = role in (standalone, cluster.gateway)
        method, kind = kinds_of(write=write)[1]
        ends_in_time(role, [Bombs(role.grpc, method, kind)])
