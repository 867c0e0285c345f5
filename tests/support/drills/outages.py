"""The drill of a broker that is away for a while under load, seen through a gateway and a store."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import psutil

from stack.kafka import KafkaCluster
from support.drills.writers import Writers
from support.servers.deployments import Deployment
from support.servers.logs import wait_until
from support.servers.probes import OneTry, healthy, partitions_ready, serving, write_once
from support.servers.processes import Role
from tsdb.client import Unavailable

Strike = Callable[[KafkaCluster], Callable[[], None]]

OKS_BETWEEN = 50
STALL_SHOWN_WITHIN_S = 30.0  # The promise.
RECOVERED_WITHIN_S = 60.0
PRODUCE_TIMEOUT_S = 6.0
SOONER_S = 4.0  # A sender's own deadline.
GATEWAY_FLAGS = ("--produce-timeout-s", str(PRODUCE_TIMEOUT_S))
LIBRARY_THREADS_S_MAX = 15.0  # Threads started a second by the Kafka library of one process while no broker answers.
CPU_SHARE_MAX = 0.1  # Share of a core that one process uses while no broker answers.
ANSWER_S = 1.0  # A refusal may come this much after its deadline: the machine is busy.


def stop(cluster: KafkaCluster) -> Callable[[], None]:
    """SIGTERM; returns what brings the broker back."""
    cluster.stop_broker(0)
    return lambda: cluster.start_broker(0)


def kill(cluster: KafkaCluster) -> Callable[[], None]:
    """Kill the broker with SIGKILL; the returned function starts it again."""
    cluster.kill_broker(0)
    return lambda: cluster.start_broker(0)


def freeze(cluster: KafkaCluster) -> Callable[[], None]:
    """SIGSTOP: connections stay open and nothing answers."""
    cluster.suspend_broker(0)
    return lambda: cluster.resume_broker(0)


def broker_away(cluster: KafkaCluster, deployment: Deployment, strike: Strike, *, least_s: float) -> None:
    """Nothing is told OK while the broker is away; what was, is read back after, and the newest write stands."""
    with Writers(deployment.gateway.grpc, timeout_s=5.0) as writers:
        writers.wait_for_oks(OKS_BETWEEN)
        writers.wait_in_flight()
        struck_at = time.monotonic()
        mend = strike(cluster)
        gone_at = time.monotonic()
        in_flight = writers.across(struck_at, struck_at)
        try:
            shown_s = _while_away(deployment, writers, gone_at, least_s)
        finally:
            mend()
        mended_at = time.monotonic()
        writers.wait_for_oks(OKS_BETWEEN, RECOVERED_WITHIN_S)
        recovered_s = time.monotonic() - mended_at
    deployment.store.wait_ready(RECOVERED_WITHIN_S)
    wait_until(lambda: serving(deployment.store), RECOVERED_WITHIN_S)
    with deployment.reader() as reader:
        checked = writers.judge(reader)
    assert in_flight > 0
    print(
        f"{strike.__name__}: {in_flight} in flight, away {mended_at - struck_at:.1f} s, shown after {shown_s:.1f} s, "
        f"{len(writers.errors)} calls refused, slowest {writers.slowest_s:.1f} s; OK again after {recovered_s:.1f} s; "
        f"{checked} samples read back"
    )


def _while_away(deployment: Deployment, writers: Writers, gone_at: float, least_s: float) -> float:
    """Refusals in time and with hints, liveness, readiness, nothing OK. Returns when the stall was shown."""
    _check_refusal(write_once(deployment.gateway, SOONER_S), SOONER_S)
    oks = writers.oks
    _check_refusal(write_once(deployment.gateway, 30.0), PRODUCE_TIMEOUT_S)
    wait_until(lambda: _alive(deployment) and deployment.store.ready()[0] == 503, STALL_SHOWN_WITHIN_S)
    shown_s = time.monotonic() - gone_at
    assert shown_s < STALL_SHOWN_WITHIN_S
    wait_until(lambda: not serving(deployment.store), STALL_SHOWN_WITHIN_S)
    assert not any(partitions_ready(deployment.store).values())
    _check_calm(deployment.gateway, deployment.store)
    while time.monotonic() - gone_at < least_s:
        assert _alive(deployment)
        threading.Event().wait(0.5)
    assert writers.oks == oks, "an OK while no broker could have acknowledged it"
    assert writers.errors
    return shown_s


def _check_calm(*roles: Role, for_s: float = 2.0) -> None:
    """While no broker answers, clients wait: they do not start one thread after another."""
    first = {role: _library_threads(role) for role in roles}
    cpu_s = {role: _cpu_s(role) for role in roles}
    seen = {role: set(threads) for role, threads in first.items()}
    end_at = time.monotonic() + for_s
    while time.monotonic() < end_at:
        for role in roles:
            seen[role] |= _library_threads(role)
    for role in roles:
        share = (_cpu_s(role) - cpu_s[role]) / for_s
        assert share <= CPU_SHARE_MAX, f"{role.arguments[0]} used {share:.0%} of a core"
        started = len(seen[role] - first[role])
        assert started <= LIBRARY_THREADS_S_MAX * for_s, f"{role.arguments[0]} started {started} threads in {for_s} s"


def _cpu_s(role: Role) -> float:
    times = psutil.Process(role.process.pid).cpu_times()
    return times.user + times.system


def _library_threads(role: Role) -> set[str]:
    """Ids of the Kafka library's threads; it names them."""
    found = set()
    for task in Path(f"/proc/{role.process.pid}/task").iterdir():
        with contextlib.suppress(OSError):  # The thread has ended meanwhile.
            if (task / "comm").read_text().startswith("rdk:"):
                found.add(task.name)
    return found


def _alive(deployment: Deployment) -> bool:
    assert healthy(deployment.store), "an outage of the log must never restart a store"
    assert healthy(deployment.gateway), "an outage of the log must never restart a gateway"
    return True


def _check_refusal(answer: OneTry, bound_s: float) -> None:
    assert answer.code is grpc.StatusCode.UNAVAILABLE, answer
    assert isinstance(answer.error, Unavailable)
    assert answer.error.retry_after_s, f"no hint when to come back: {answer.error.reason}"
    assert answer.seconds < bound_s + ANSWER_S, answer
