"""Attacks the promise that one client never harms another, at the ports: connections that waste, requests that explode.

No call of others fails, calls and probes stay as fast as those of an untouched server in the same minutes, and memory
stays bounded. With 1,000 connections, every bomb and every role: tests/soak/test_attacks_edges.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.drills.edge_attackers import HTTP, REFLECTION, WRITE
from support.drills.edge_drills import bombs, crowd, crowds_of, ends_in_time, no_descriptors
from support.servers.deployments import Deployment, embedded
from support.servers.processes import Role

CALLS = 40
CONNECTIONS = 600  # 512 connections locked out all probes before the listener had a limit.
BOMBS = 16
KINDS = [
    (WRITE, "gzip"),
    (WRITE, "tiny_fields"),
    (REFLECTION, "malformed"),
    (HTTP, "large_body"),
]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    with embedded(tmp_path_factory.mktemp("edges")) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Role]:
    """A server that nobody attacks, measured at the same time."""
    with embedded(tmp_path_factory.mktemp("control")) as deployment:
        yield deployment.store


def test_idle_slow_and_half_open_connections_harm_nobody(running: Deployment, control: Role) -> None:
    crowd(running.gateway, running.store, connections=CONNECTIONS, calls=CALLS, control=control)


def test_bombs_are_refused_within_the_bound_of_memory_and_harm_nobody(running: Deployment, control: Role) -> None:
    bombs(
        running.gateway, running.store, kinds=KINDS, target=running.gateway, count=BOMBS, calls=CALLS, control=control
    )


def test_without_file_descriptors_probes_and_clients_go_on(running: Deployment, control: Role) -> None:
    no_descriptors(running.store, connections=CONNECTIONS // 2, calls=CALLS, control=control)


def test_sigterm_ends_in_time_in_the_middle_of_an_attack(running: Deployment) -> None:
    ends_in_time(running.store, crowds_of(running.store, CONNECTIONS))
    running.store.start()
