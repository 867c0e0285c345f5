"""Drill of a part that is frozen: the broker, or one of two stores. All else is answered in time.

While the part is frozen, one thread for each kind of request asks a querier without pause, so that kinds could block
one another. Each answer has a bound; a refusal counts as one when it is typed and allowed for that part.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from stack.kafka import KafkaCluster
from support.servers.deployments import create_topics
from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.client import WriteBatch, connect

CONSTANT, RECENT, STALE, PAST, PROBE = "1+1", "recent", "allow_stale", "past", "probe"
BOUNDS_S = {CONSTANT: 1.0, RECENT: 2.0, STALE: 2.0, PAST: 3.0, PROBE: 1.0}
TYPED = ("unavailable", "timeout")
SERIES = 20
WITHIN_S = 60.0


@dataclass
class Kind:
    """Requests of one kind. refused: error types of refusals."""

    slowest_s: float = 0.0
    answers: int = 0
    refused: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Fleet:
    """A gateway, two stores of all partitions, and a querier of both."""

    gateway: Role
    stores: Sequence[Role]
    querier: Role
    name: str


@contextmanager
def fleet(scratch: Path, bootstrap: str) -> Iterator[Fleet]:
    """The stores hold SERIES series with samples of now and of an hour ago."""
    log = create_topics(bootstrap)
    with ExitStack() as stack:
        gateway = stack.enter_context(Role(scratch, "gateway", *log))
        stores = [stack.enter_context(Role(scratch, "store", *log)) for _ in range(2)]
        addresses = ",".join(store.grpc for store in stores)
        # One slot: what is stuck must not hold it.
        one_slot = ("--query-running-max", "1", "--stores", addresses)
        asked = stack.enter_context(Role(scratch, "querier", *log, *one_slot))
        made = Fleet(gateway, stores, asked, f"stuck_{uuid.uuid4().hex[:8]}")
        _write(made)
        yield made


def _write(fleet: Fleet) -> None:
    now_ms = time.time_ns() // 1_000_000
    batch = WriteBatch()
    for number in range(SERIES):
        labels = {"__name__": fleet.name, "job": "stuck", "instance": str(number)}
        batch.add(labels, [now_ms - 3_600_000, now_ms - 1000, now_ms], [1.0, 2.0, 3.0])
    with connect(fleet.gateway.grpc, timeout_s=30.0) as client:
        client.write(batch)
    wait_until(lambda: _asked(fleet, f"count({fleet.name})")[1] == str(SERIES), WITHIN_S)


def _asked(fleet: Fleet, query: str, **more: str) -> tuple[str, str]:
    """(error type or "", value)."""
    url = f"http://{fleet.querier.http}/api/v1/query?{urllib.parse.urlencode({'query': query, **more})}"
    try:
        with urllib.request.urlopen(url, timeout=90) as answer:
            result = json.loads(answer.read())["data"]["result"]
    except urllib.error.HTTPError as error:
        with error:
            return json.loads(error.read())["errorType"], ""
    if not result:
        return "", ""
    return "", result[0]["value"][1] if isinstance(result[0], dict) else result[1]


def part_is_frozen(
    fleet: Fleet, freeze: Callable[[], None], thaw: Callable[[], None], *, seconds: float, may_refuse: Sequence[str]
) -> None:
    """may_refuse: kinds that the frozen part may refuse, with a typed error."""
    past_ms = str(time.time_ns() / 1e9 - 3_599)
    count = f"count({fleet.name})"
    requests: Mapping[str, Callable[[], tuple[str, str]]] = {
        CONSTANT: lambda: _asked(fleet, "1+1"),
        RECENT: lambda: _asked(fleet, count),
        STALE: lambda: _asked(fleet, count, allow_stale="1"),
        PAST: lambda: _asked(fleet, count, time=past_ms),
        PROBE: lambda: _probed(fleet),
    }
    expected = {CONSTANT: "2", RECENT: str(SERIES), STALE: str(SERIES), PAST: str(SERIES), PROBE: "alive"}
    kinds = {name: Kind() for name in requests}
    over = threading.Event()

    def ask(name: str) -> None:
        while not over.is_set():
            began = time.monotonic()
            try:
                refusal, value = requests[name]()
            except OSError as error:
                refusal, value = "", str(error)
            took_s = time.monotonic() - began
            kind = kinds[name]
            kind.slowest_s = max(kind.slowest_s, took_s)
            kind.answers += 1
            if refusal:
                kind.refused.append(refusal)
            elif value != expected[name]:
                kind.broken.append(value)
            over.wait(0.05)

    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in requests]
    freeze()
    try:
        for thread in threads:
            thread.start()
        threading.Event().wait(seconds)
    finally:
        over.set()
        for thread in threads:
            thread.join(100.0)
        thaw()
    print({name: (round(kind.slowest_s, 2), kind.answers, len(kind.refused)) for name, kind in kinds.items()})
    for name, kind in kinds.items():
        assert not kind.broken, f"{name}: {kind.broken[:3]}"
        assert kind.answers > 1, name
        assert kind.slowest_s <= BOUNDS_S[name], f"{name} took {kind.slowest_s:.2f} s"
        assert set(kind.refused) <= set(TYPED), f"{name}: {kind.refused[:3]}"
        assert name in may_refuse or not kind.refused, f"{name} was refused {len(kind.refused)} times"


def _probed(fleet: Fleet) -> tuple[str, str]:
    """Liveness of all processes that are not frozen; readiness is asked too, and may be either."""
    with urllib.request.urlopen(f"http://{fleet.querier.http}/-/healthy", timeout=90):
        pass
    try:
        with urllib.request.urlopen(f"http://{fleet.querier.http}/-/ready", timeout=90):
            pass
    except urllib.error.HTTPError as error:
        error.close()
    return "", "alive"


def broker_is_frozen(cluster: KafkaCluster, fleet: Fleet, seconds: float) -> None:
    """Newest samples may be refused once the end of the log is old."""
    part_is_frozen(
        fleet,
        lambda: cluster.suspend_broker(0),
        lambda: cluster.resume_broker(0),
        seconds=seconds,
        may_refuse=(RECENT,),
    )


def store_is_frozen(fleet: Fleet, seconds: float) -> None:
    """Nothing is refused: the other store has all partitions."""
    store = fleet.stores[0]
    part_is_frozen(fleet, store.suspend, store.resume, seconds=seconds, may_refuse=())
