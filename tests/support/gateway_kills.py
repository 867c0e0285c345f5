"""The drill: a gateway process killed at random instants under load, and judged by the log alone."""

from __future__ import annotations

import random
import time
import uuid
from pathlib import Path

from support.gateway_clients import GatewayClients
from support.log_reading import read_contents
from support.logs import LogFactory, wait_until
from support.processes import Role, tsdb_ok

OKS_BETWEEN = 50
DELAY_S_MAX = 0.3


def kill_under_load(url: str, scratch: Path, kills: int, seed: int) -> None:
    """Topics of its own, `kills` times SIGKILL with a request in flight, a drain at the end. Prints the seed."""
    print(f"seed {seed}")
    rng, prefix = random.Random(seed), f"k{uuid.uuid4().hex[:12]}."
    log = ("--log", url, "--log-prefix", prefix)
    tsdb_ok("topics", "create", *log, "--partitions", "3", "--replication", "1")
    with Role(scratch, "gateway", *log) as gateway, GatewayClients(gateway.grpc) as clients:
        for _ in range(kills):
            _wait_for_oks(clients)
            time.sleep(rng.random() * DELAY_S_MAX)  # The random instant.
            at = time.monotonic()
            gateway.kill()
            wait_until(lambda at=at: clients.cut_off(at) > 0)  # type: ignore[misc]  # this turn's moment
            gateway.start()
        _wait_for_oks(clients)
        clients.stop()
        assert gateway.terminate() == 0
    with LogFactory(url, prefix) as factory:
        clients.judge(read_contents(factory.open()))


def _wait_for_oks(clients: GatewayClients) -> None:
    before = clients.oks
    wait_until(lambda: clients.oks > before + OKS_BETWEEN, within_s=60)
