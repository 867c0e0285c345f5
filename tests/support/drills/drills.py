"""Drills that tests run short and the soak runs long: faults under load, checked by the answers of a store."""

from __future__ import annotations

import random
import threading

from support.drills.writers import Writers
from support.servers.deployments import Deployment
from support.servers.processes import Role

OKS_BETWEEN = 50
INSTANT_S_MAX = 0.3
REST_S = 0.05  # Pause of each writer while servers start, because the machine has other work.


def kill_gateway(deployment: Deployment, *, kills: int, seed: int) -> None:
    """SIGKILL at random instants with requests in flight, each time followed by a restart under load."""
    rng = random.Random(seed)
    with Writers(deployment.gateway.grpc) as writers:
        in_flight = [_kill_and_restart(deployment.gateway, writers, rng) for _ in range(kills)]
        writers.wait_for_oks(OKS_BETWEEN)
    with deployment.reader() as reader:
        checked = writers.judge(reader)
    print(f"seed {seed}: {kills} kills, in flight {in_flight}; {writers.oks} OKs, {checked} samples read back")


def kill_store(deployment: Deployment, *, kills: int, seed: int) -> None:
    """The store dies at random instants while writers go on, who must not notice."""
    rng = random.Random(seed)
    with Writers(deployment.gateway.grpc, rest_s=REST_S) as writers:
        for _ in range(kills):
            writers.wait_for_oks(OKS_BETWEEN)
            threading.Event().wait(rng.uniform(0, INSTANT_S_MAX))  # The random instant is what is tested.
            deployment.store.kill()
            writers.wait_for_oks(OKS_BETWEEN)
            deployment.store.start()
        assert writers.errors == [], "a dead store is no reason to refuse a write"
    with deployment.reader() as reader:
        checked = writers.judge(reader)
    print(f"seed {seed}: {kills} kills of the store; {writers.oks} OKs, {checked} samples read back")


def _kill_and_restart(gateway: Role, writers: Writers, rng: random.Random) -> int:
    """Returns how many requests were under way when the process died.

    The process is frozen at a random instant and dies in this state. Frozen, it answers no request that is under way.
    """
    writers.wait_for_oks(OKS_BETWEEN)
    threading.Event().wait(rng.uniform(0, INSTANT_S_MAX))  # The random instant is what is tested.
    gateway.suspend()
    killed_at = writers.wait_in_flight()
    gateway.kill()
    in_flight = writers.across(killed_at, killed_at)
    assert in_flight > 0
    gateway.start()
    return in_flight
