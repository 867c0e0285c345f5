"""Attacks the promise that a gateway with a wrong clock costs no sample, beside one whose clock is right.

A real Prometheus sends through a balancer that gives each connection to the next gateway. Every sample that it sent is
read back bit for bit, and the gateway with the wrong clock is unready.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.drills.outages import GATEWAY_FLAGS
from support.senders.balancer import balancer
from support.senders.prometheus import Recorder, agent, node_exporter
from support.senders.prometheus_drill import Sending
from support.servers.deployments import on_kafka
from support.servers.logs import wait_until
from support.servers.processes import Role
from support.shared_servers import SharedBroker

SHIFTED_CLOCK = Path(__file__).parents[1] / "support" / "shifted_clock"
SHIFT_S = 600
SOAK_SCRAPES = 600


def readiness(role: Role) -> tuple[int, str]:
    """Status and reason of a role's probe."""
    status, found = role.ready()
    return status, found.get("reason", "") if found else ""


def nothing_is_dropped(scratch: Path, kafka: SharedBroker, shift_s: int, scrapes: int) -> None:
    """A gateway with a shifted clock beside a good one."""
    env = {"PYTHONPATH": str(SHIFTED_CLOCK), "CLOCK_SHIFT_S": str(shift_s)}
    with on_kafka(scratch, kafka.bootstrap, gateway=GATEWAY_FLAGS) as deployment:
        wrong = Role(scratch, "gateway", *deployment.log, *GATEWAY_FLAGS, env=env)
        with wrong, node_exporter() as node, Recorder() as recorder:
            jobs, gateways = {"node": node}, [wrong.http, deployment.gateway.http]
            with (
                balancer(gateways) as address,
                agent(scratch, jobs, {"tsdb": address, "recorder": recorder.address}) as sender,
            ):
                sending = Sending(sender, recorder, deployment)
                sending.wait_for_scrapes(2)
                wait_until(lambda: readiness(wrong) == (503, "clock"), 30.0, describe=lambda: readiness(wrong))
                sending.wait_for_scrapes(scrapes, within_s=3.0 * scrapes + 30.0)
                assert readiness(wrong) == (503, "clock")
                assert readiness(deployment.gateway) == (200, "")
                print(f"{sending.check()} samples")


def test_a_gateway_ten_minutes_fast_beside_a_good_one_drops_no_sample_of_prometheus(
    tmp_path: Path, kafka: SharedBroker
) -> None:
    nothing_is_dropped(tmp_path, kafka, SHIFT_S, scrapes=5)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shift_s", [-SHIFT_S, SHIFT_S], ids=["slow", "fast"])
def test_ten_minutes_beside_a_gateway_that_is_off_drop_no_sample(
    tmp_path: Path, kafka: SharedBroker, shift_s: int
) -> None:
    nothing_is_dropped(tmp_path, kafka, shift_s, scrapes=SOAK_SCRAPES)
