"""Drill of a part that is frozen: the broker, one of two stores, or Cassandra. All else is answered in time.

While the part is frozen, one thread for each kind of request asks a querier without pause, so that kinds could block
one another. Each kind has a bound; a refusal counts as one when it is typed and allowed for that part. In a long drill
the bound is of the slowest request, with the delay that an untouched server had in the same minutes; in a short one,
which runs beside other tests, it is of the median.
"""

from __future__ import annotations

import json
import signal
import statistics
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from stack.cassandra import CassandraNode
from stack.kafka import KafkaCluster
from support.drills.untouched import untouched
from support.oracles.fragment_twin import bits, fragment_of
from support.servers.deployments import PARTITIONS, create_topics
from support.servers.histories import WINDOW_MS, written
from support.servers.logs import wait_until
from support.servers.processes import Role, tsdb_ok
from tsdb.client import WriteBatch, connect
from tsdb.codec.chunk.chunk import encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.records.log_record import encode_tick
from tsdb.codec.records.series_record import Announcement
from tsdb.history.interface import Loaded
from tsdb.history.open import open_history
from tsdb.log.interface import METRICS, Log
from tsdb.log.open import open_log
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.window import floor_to, index_epoch

CONSTANT, RECENT, STALE, PAST, HISTORY, PROBE = "1+1", "recent", "allow_stale", "past", "history", "probe"
BOUNDS_S = {CONSTANT: 1.0, RECENT: 2.0, STALE: 2.0, PAST: 3.0, HISTORY: 3.0, PROBE: 1.0}
DAY_MS = 86_400_000
TYPED = ("unavailable", "timeout")
SERIES = 20
WITHIN_S = 60.0
LONG_S = 60.0
PAUSE_S = 1.0  # Where an untouched server was delayed as long, a part that is not frozen may seem to be.


@dataclass
class Answers:
    """Requests of one kind. took_s: seconds of each. refused: error types of refusals."""

    took_s: list[float] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Fleet:
    """A gateway, two stores of all partitions, and a querier of both and of history. old_ms: the time of samples that
    history alone has.
    """

    gateway: Role
    stores: Sequence[Role]
    querier: Role
    name: str
    old_ms: int


@contextmanager
def fleet(scratch: Path, bootstrap: str, history: str) -> Iterator[Fleet]:
    """The stores hold SERIES series with samples of now and of an hour ago; history has them ten days ago."""
    log = create_topics(bootstrap)
    tsdb_ok("history", "create", *log, "--history", history, "--replication", "1")
    with ExitStack() as stack:
        gateway = stack.enter_context(Role(scratch, "gateway", *log))
        stores = [stack.enter_context(Role(scratch, "store", *log)) for _ in range(2)]
        addresses = ",".join(store.grpc for store in stores)
        # One slot: what is stuck must not hold it.
        one_slot = ("--query-running-max", "1", "--stores", addresses)
        asked = stack.enter_context(Role(scratch, "querier", *log, "--history", history, *one_slot))
        old_ms = floor_to(time.time_ns() // 1_000_000 - 10 * DAY_MS, WINDOW_MS)
        made = Fleet(gateway, stores, asked, f"stuck_{uuid.uuid4().hex[:8]}", old_ms)
        _write(made)
        with open_log(log[1], prefix=log[3]) as opened:
            _import(made, opened, history)
        wait_until(lambda: _asked(made, f"count({made.name})", time=_at(made.old_ms + 1))[1] == str(SERIES), WITHIN_S)
        yield made


def _import(fleet: Fleet, log: Log, history: str) -> None:
    """Bring samples of ten days ago to history, as an import and its loader do, so that memory has not all of it."""
    topic_id = log.topic_id(METRICS)
    now_ms = time.time_ns() // 1_000_000
    rule = PlacementRule()
    with open_history(history) as store:
        for number in range(SERIES):
            labels = canonical_labels({"__name__": fleet.name, "job": "stuck", "instance": str(number)})
            place, epoch = rule.place(labels), index_epoch(series_id(labels), fleet.old_ms)
            samples = {(series_id(labels), fleet.old_ms): (1, bits(1.0))}
            (value,) = encode_chunk(
                fragment_of(samples, place.pack_id, fleet.old_ms), window_ms=WINDOW_MS, part_bytes_max=1 << 19
            )
            key = ChunkKey(place.pack_id, fleet.old_ms, Kind.IMPORT, 1, 0)
            announced = Announcement(series_id(labels), epoch, place.pack_id, labels)
            at = partition_of(place.placement, PARTITIONS)
            written(partial(store.write, key, value))
            written(partial(store.write_series, announced, at))
        for partition in range(PARTITIONS):
            tick = log.append_sync(METRICS, partition, encode_tick(import_tick=True))
            loaded = Loaded(topic_id, partition, tick.offset, floor_to(now_ms, WINDOW_MS))
            written(partial(store.write_loaded, loaded))


def _at(time_ms: int) -> str:
    return str(time_ms / 1000)


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
        HISTORY: lambda: _asked(fleet, count, time=_at(fleet.old_ms + 1)),
        PROBE: lambda: _probed(fleet),
    }
    expected = {
        CONSTANT: "2",
        RECENT: str(SERIES),
        STALE: str(SERIES),
        PAST: str(SERIES),
        HISTORY: str(SERIES),
        PROBE: "alive",
    }
    kinds = {name: Answers() for name in requests}
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
            kind.took_s.append(took_s)
            if refusal:
                kind.refused.append(refusal)
            elif value != expected[name]:
                kind.broken.append(value)
            over.wait(0.2)

    # After an earlier drill the stores may still read on.
    wait_until(lambda: all(request() == ("", expected[name]) for name, request in requests.items()), WITHIN_S)
    threads = [threading.Thread(target=ask, args=(name,), daemon=True) for name in requests]
    with untouched() as slowest_s:
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
        paused_s = slowest_s()
    print(f"an untouched server: {paused_s:.2f} s")
    print({name: (round(max(kind.took_s), 2), len(kind.took_s), len(kind.refused)) for name, kind in kinds.items()})
    for name, kind in kinds.items():
        assert not kind.broken, f"{name}: {kind.broken[:3]}"
        assert len(kind.took_s) > 1, name
        # A frozen part delays each request that waits for it. A paused machine delays some requests of all kinds.
        assert statistics.median(kind.took_s) <= BOUNDS_S[name], f"{name} took {sorted(kind.took_s)} s"
        assert max(kind.took_s) < seconds, f"{name} waited for the frozen part"
        assert set(kind.refused) <= set(TYPED), f"{name}: {kind.refused[:3]}"
        # A part that is not frozen may pause for seconds, as its machine does, and its requests are refused then.
        few = len(kind.refused) * 4 < len(kind.took_s)
        if seconds >= LONG_S:
            assert max(kind.took_s) <= BOUNDS_S[name] + paused_s, f"{name}: {max(kind.took_s)} s, {paused_s=}"
            few = not kind.refused or paused_s > PAUSE_S
        assert name in may_refuse or few, f"{name} was refused {len(kind.refused)} times of {len(kind.took_s)}"


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
    """The other store has all partitions."""
    store = fleet.stores[0]
    part_is_frozen(fleet, store.suspend, store.resume, seconds=seconds, may_refuse=())


def cassandra_is_frozen(node: CassandraNode, fleet: Fleet, seconds: float) -> None:
    """History alone may be refused. It is answered again within some seconds of the node's return."""
    freeze, thaw = (partial(node.process.signal, number) for number in (signal.SIGSTOP, signal.SIGCONT))
    part_is_frozen(fleet, freeze, thaw, seconds=seconds, may_refuse=(HISTORY,))
    count = f"count({fleet.name})"
    wait_until(lambda: _asked(fleet, count, time=_at(fleet.old_ms + 1))[1] == str(SERIES), WITHIN_S)
