"""Drills of a broker that is away for a while under load: seen through a gateway and a store, and again and again under
a whole deployment.

After each of many outages every process is well within WELL_WITHIN_S of the broker's answer, or is not live and is
restarted, as an orchestrator does.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import psutil

from stack.kafka import KafkaCluster
from support.drills.writers import Writers
from support.servers.deployments import PARTITIONS, Deployment, create_topics
from support.servers.logs import wait_until
from support.servers.probes import OneTry, healthy, partitions_ready, serving, write_once
from support.servers.processes import Role, tsdb_ok
from tsdb.client import ReadOptions, TsdbError, Unavailable, connect

Strike = Callable[[KafkaCluster], Callable[[], None]]

OKS_BETWEEN = 50
# The promise is 30 s, three times less. Unit tests with a manual clock hold its parts: a log that does not answer shows
# after 10 s (store/test_watermarks.py), a lag after 20 s (store/test_readiness.py).
STALL_SHOWN_WITHIN_S = 90.0
RECOVERED_WITHIN_S = 120.0
PRODUCE_TIMEOUT_S = 6.0
SOONER_S = 4.0  # A sender's own deadline.
LATER_S = 30.0  # A deadline far above PRODUCE_TIMEOUT_S, so that the gateway refuses first even on a slow machine.
TRIES = 5
GATEWAY_FLAGS = ("--produce-timeout-s", str(PRODUCE_TIMEOUT_S))
CPU_SHARE_MAX = 0.1  # Share of a core that one process uses while no broker answers.
WELL_WITHIN_S = 30.0
LIVENESS_FAILS = 3  # As the probes of deploy/kubernetes: three in a row restart a process.
LIVENESS_EVERY_S = 5.0
REST_S = 0.1  # Pause of each writer, because the machine has other work in this drill.
LOOK_S = 0.25


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
    """No write is answered OK while the broker is away. All writes with an OK are read back after the outage, and the
    newest write of each series counts.
    """
    with Writers(deployment.gateway.grpc, timeout_s=5.0) as writers:
        writers.wait_for_oks(OKS_BETWEEN)
        struck_at = writers.wait_in_flight()
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
    _check_refusal(_refused_before(deployment.gateway, SOONER_S))
    oks = writers.oks
    _check_refusal(write_once(deployment.gateway, LATER_S))
    wait_until(lambda: _alive(deployment) and deployment.store.ready()[0] == 503, STALL_SHOWN_WITHIN_S)
    shown_s = time.monotonic() - gone_at
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
    """While no broker answers, a client tries again about once a second: it does not start one thread after another.

    A client has a main thread and one or two for brokers, and a try starts two. So the threads started in a second are
    at most as many as there are.
    """
    first = {role: _library_threads(role) for role in roles}
    cpu_s = {role: _cpu_s(role) for role in roles}
    seen = {role: set(threads) for role, threads in first.items()}
    began_at = time.monotonic()
    while time.monotonic() - began_at < for_s:
        for role in roles:
            seen[role] |= _library_threads(role)
    took_s = time.monotonic() - began_at  # Longer where the machine stood still.
    for role in roles:
        share = (_cpu_s(role) - cpu_s[role]) / took_s
        assert share <= CPU_SHARE_MAX, f"{role.arguments[0]} used {share:.0%} of a core"
        started = len(seen[role] - first[role])
        most = len(first[role]) * took_s
        assert started <= most, f"{role.arguments[0]} started {started} threads in {took_s} s, not {most:.0f}"


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


def _refused_before(gateway: Role, deadline_s: float) -> OneTry:
    """A write that the gateway refused before the sender's own deadline. A pause of the machine may let the deadline
    come first.
    """
    for _ in range(TRIES):
        answer = write_once(gateway, deadline_s)
        if answer.code is not grpc.StatusCode.DEADLINE_EXCEEDED:
            break
    return answer


def _check_refusal(answer: OneTry) -> None:
    assert answer.code is grpc.StatusCode.UNAVAILABLE, answer
    assert isinstance(answer.error, Unavailable)
    assert answer.error.retry_after_s, f"no hint when to come back: {answer.error.reason}"


@dataclass(frozen=True)
class Outage:
    """One outage. seconds: duration until the broker is started again."""

    strike: Strike
    seconds: float


def outages(seed: int, count: int, shortest_s: float, longest_s: float) -> list[Outage]:
    """Random outages: each kind of strike, most of them short."""
    source = random.Random(seed)
    print(f"outages of seed {seed}")
    strikes: Sequence[Strike] = (freeze, stop, kill)
    kinds = [strikes[number % len(strikes)] for number in range(count)]
    source.shuffle(kinds)
    span_s = longest_s - shortest_s
    lengths = [shortest_s, longest_s, *(shortest_s + span_s * source.random() ** 5 for _ in range(count - 2))]
    source.shuffle(lengths)
    return [Outage(kind, seconds) for kind, seconds in zip(kinds, lengths, strict=True)]


@dataclass
class Fleet:
    """The processes by name, and how often each was restarted."""

    gateway: Role
    stores: Sequence[Role]
    chunkers: Sequence[Role]
    loaders: Sequence[Role]
    querier: Role
    restarts: dict[str, int] = field(default_factory=dict)

    @property
    def roles(self) -> dict[str, Role]:
        groups = {"store": self.stores, "chunker": self.chunkers, "loader": self.loaders}
        several = {f"{name}-{at}": role for name, some in groups.items() for at, role in enumerate(some)}
        return {"gateway": self.gateway, "querier": self.querier, **several}


@contextlib.contextmanager
def fleet(scratch: Path, bootstrap: str) -> Iterator[Fleet]:
    """A deployment over new topics, every process ready."""
    log = create_topics(bootstrap)
    history = ("--history", f"parquet:///{scratch}/history")
    stores = [Role(scratch, "store", *log) for _ in range(2)]
    addresses = [argument for store in stores for argument in ("--stores", store.grpc)]
    made = Fleet(
        Role(scratch, "gateway", *log, "--produce-timeout-s", "6"),
        stores,
        [Role(scratch, "chunker", *log) for _ in range(2)],
        [Role(scratch, "loader", *log, *history) for _ in range(2)],
        Role(scratch, "querier", *log, *addresses),
    )
    tsdb_ok("history", "create", *log, *history)
    with contextlib.ExitStack() as stack:
        for role in made.roles.values():
            stack.push(role)
            role.start(ready=False)
        for role in made.roles.values():
            role.wait_ready()
        yield made


def outages_leave_all_well(cluster: KafkaCluster, running: Fleet, planned: Sequence[Outage]) -> None:
    """Run the outages one after another. Every acknowledged sample is read back from each store in the end."""
    with Writers(running.gateway.grpc, timeout_s=5.0, rest_s=REST_S) as writers, _supervised(running):
        for number, outage in enumerate(planned, start=1):
            _wait_until_well(running, writers, time.monotonic(), within_s=4 * WELL_WITHIN_S)
            mend = outage.strike(cluster)
            try:
                threading.Event().wait(outage.seconds)
            finally:
                mend()
            cluster.wait_ready()
            took_s = _wait_until_well(running, writers, time.monotonic(), within_s=WELL_WITHIN_S)
            slowest = max(took_s, key=lambda name: took_s[name])
            print(
                f"outage {number}: {outage.strike.__name__} for {outage.seconds:.1f} s; all well after "
                f"{took_s[slowest]:.1f} s, the last {slowest}; restarts {running.restarts or 'none'}",
                flush=True,
            )
    for store in running.stores:
        with connect(store.grpc, timeout_s=WELL_WITHIN_S) as reader:
            print(f"{writers.judge(reader)} samples read back")


@contextlib.contextmanager
def _supervised(running: Fleet) -> Iterator[None]:
    """Restart what is not live, as an orchestrator does."""
    ended = threading.Event()
    failed: list[BaseException] = []

    def supervise() -> None:
        fails: dict[str, int] = {}
        try:
            while not ended.wait(LIVENESS_EVERY_S):
                for name, role in running.roles.items():
                    fails[name] = 0 if _is_live(role) else fails.get(name, 0) + 1
                    if fails[name] >= LIVENESS_FAILS or role.process.poll() is not None:
                        fails[name] = 0
                        running.restarts[name] = running.restarts.get(name, 0) + 1
                        role.kill()
                        role.start(ready=False)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=supervise, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(60.0)
    assert not failed, failed


def _is_live(role: Role) -> bool:
    try:
        return healthy(role)
    except OSError:
        return False


def _wait_until_well(running: Fleet, writers: Writers, since: float, *, within_s: float) -> dict[str, float]:
    """Seconds after `since` (monotonic) until each process was well. Fails after within_s."""
    oks, applied, loaded = writers.oks, _applied(running), _loaded(running)
    checks: dict[str, Callable[[], bool]] = {
        **{f"{name} ready": lambda role=role: role.ready()[0] == 200 for name, role in running.roles.items()},  # type: ignore[misc]
        "gateway writes": lambda: writers.oks >= oks + OKS_BETWEEN,
        "chunkers apply": lambda: _is_above(_applied(running), applied, writers),
        "loaders load": lambda: _is_above(_loaded(running), loaded, writers),
        **{
            f"{name} reads": lambda role=role: _reads(role, writers)  # type: ignore[misc]
            for name, role in running.roles.items()
            if name.startswith(("store", "querier"))
        },
    }
    took_s: dict[str, float] = {}
    while checks:
        for name, check in list(checks.items()):
            if _holds(check):
                took_s[name] = time.monotonic() - since
                del checks[name]
        late = time.monotonic() - since > within_s
        assert not (checks and late), f"{sorted(checks)} not within {within_s:g} s; others {took_s}; {_states(running)}"
        time.sleep(LOOK_S)  # Interval of checks of other processes. The loop's condition is the claim.
    return took_s


def _holds(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except (OSError, TsdbError):
        return False  # The broker does not answer yet.


def _reads(role: Role, writers: Writers) -> bool:
    """Whether a read has all that is acknowledged now."""
    now_ms = time.time_ns() // 1_000_000
    with connect(role.grpc, timeout_s=2.0) as reader:
        reader.select(writers.selector, now_ms - 1, now_ms, options=ReadOptions(after=writers.tokens()))
    return True


def _is_above(now: dict[int, float], before: dict[int, float], writers: Writers) -> bool:
    """Whether each partition that the writers write to has an owner that went on."""
    written = {token.partition for token in writers.tokens()}
    return bool(written) and all(now[partition] > before[partition] for partition in written)


def _applied(running: Fleet) -> dict[int, float]:
    """The next offset of each partition's chunker; 0 for a partition without an owner."""
    found = dict.fromkeys(range(PARTITIONS), 0.0)
    for chunker in running.chunkers:
        _, state = chunker.ready()
        for number, partition in ((state or {}).get("partitions") or {}).items():
            found[int(number)] = max(found[int(number)], partition.get("next_offset") or 0)
    return found


def _loaded(running: Fleet) -> dict[int, float]:
    """Positions of the loaders in `series`, whose records come all the time; 0 for a partition without an owner."""
    found = dict.fromkeys(range(PARTITIONS), 0.0)
    for loader in running.loaders:
        with contextlib.suppress(OSError):
            metrics = loader.metrics()
            for number in found:
                name = f'tsdb_loader_position{{partition="{number}",topic="series"}}'
                found[number] = max(found[number], metrics.get(name, 0.0))
    return found


def _states(running: Fleet) -> dict[str, object]:
    return {name: role.ready() for name, role in running.roles.items()}
