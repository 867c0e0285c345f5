"""Attacks on reads: unread answers, bad regular expressions, waits for records that never come."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np

from support.data.long_values import SLOW_PATTERN, long_labels
from support.drills.bystander import Bystander, RssPeak, check_unharmed
from support.servers.deployments import Deployment
from support.servers.logs import wait_until
from support.servers.processes import Role
from tsdb.client import ReadOptions, WriteBatch
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.v1 import common_pb2, reader_pb2, reader_pb2_grpc

MIB = 1 << 20
CALLS = 64
FAR_AWAY = 1 << 40
WITHIN_S = 60.0
# Memory beside answers_bytes_max: one decoded block for each running answer, and messages in the transport.
BESIDE_BYTES = 250 * MIB

NAME, LONG_NAME = "attacked", "attacked_long"


@dataclass(frozen=True)
class Attacked:
    """A system with `series` series of `samples` samples, and `long_series` with long label values."""

    running: Deployment
    answers_bytes_max: int
    drain_s: float

    @property
    def roles(self) -> list[Role]:
        """The attacked processes, each of them once."""
        gateway, store = self.running.gateway, self.running.store
        return list({gateway.grpc: gateway, store.grpc: store}.values())

    def write(self, *, series: int, samples: int, long_series: int) -> None:
        """Write the samples of both series sets."""
        end_ms = time.time_ns() // 1_000_000
        ts_ms = np.arange(end_ms - samples * 1000, end_ms, 1000)
        with self.running.writer() as writer:
            for first in range(0, series, 500):
                batch = WriteBatch()
                for number in range(first, min(first + 500, series)):
                    labels = {"__name__": NAME, "job": "a", "instance": str(number % 16), "number": str(number)}
                    batch.add(labels, ts_ms, np.random.default_rng(number).random(samples))
                writer.write(batch)
            for first in range(0, long_series, 500):
                batch = WriteBatch()
                for number in range(first, min(first + 500, long_series)):
                    batch.add({**long_labels(number), "__name__": LONG_NAME}, end_ms, 1.0)
                written = writer.write(batch)
        with self.running.reader() as reader:
            reader.select(LONG_NAME, end_ms, end_ms + 1, options=ReadOptions(after=written.tokens))
            wait_until(lambda: len(reader.select(NAME, 0, 1 << 50, last_n=1)) == series, WITHIN_S)


@contextlib.contextmanager
def stub_of(role: Role) -> Iterator[Any]:
    """A client over a separate connection."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(role.grpc, options) as channel:
        yield reader_pb2_grpc.ReaderStub(channel)


def select_all(encoding: reader_pb2.Encoding.ValueType) -> reader_pb2.SelectRequest:
    """Every sample of the attacked series."""
    matchers = [common_pb2.Matcher(name="__name__", value=NAME)]
    return reader_pb2.SelectRequest(matchers=matchers, start_ms=0, end_ms=1 << 50, encoding=encoding)


@contextlib.contextmanager
def unread_answers(role: Role, encoding: reader_pb2.Encoding.ValueType = reader_pb2.RAW) -> Iterator[None]:
    """As many answers as calls may run, all unread beyond the part that gRPC buffers."""
    with stub_of(role) as stub:
        streams = [stub.Select(select_all(encoding)) for _ in range(CALLS)]
        try:
            yield
        finally:
            for stream in streams:
                stream.cancel()


@contextlib.contextmanager
def far_waits(role: Role) -> Iterator[None]:
    """Keep as many reads waiting for a record far away as calls may run."""
    with stub_of(role) as stub:
        topic_id = stub.Coverage(reader_pb2.CoverageRequest(), timeout=WITHIN_S).partitions[0].topic_id
        token = common_pb2.Token(topic_id=topic_id, partition=0, record_offset=FAR_AWAY)
        request = select_all(reader_pb2.RAW)
        request.options.after.append(token)
        streams = [stub.Select(request, timeout=WITHIN_S) for _ in range(CALLS)]
        try:
            yield
        finally:
            for stream in streams:
                stream.cancel()


@contextlib.contextmanager
def killed_regex(role: Role) -> Iterator[None]:
    """A client with four concurrent queries of a bad regular expression, which is killed."""
    command = [sys.executable, "-c", KILLED, role.grpc, LONG_NAME, SLOW_PATTERN]
    client = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert client.stdout is not None
    try:
        assert client.stdout.readline() == b"asked\n"
        time.sleep(0.3)  # The attack itself: the expression is at work when its client dies.
        client.kill()
        yield
    finally:
        client.kill()
        client.wait()
        client.stdout.close()


KILLED = """
import sys, time, grpc
from tsdb.v1 import common_pb2, reader_pb2, reader_pb2_grpc
address, name, pattern = sys.argv[1:]
stub = reader_pb2_grpc.ReaderStub(grpc.insecure_channel(address))
matchers = [
    common_pb2.Matcher(name="__name__", value=name),
    common_pb2.Matcher(type=common_pb2.Matcher.REGEX, name="long", value=pattern),
]
calls = [stub.Select(reader_pb2.SelectRequest(matchers=matchers, start_ms=0, end_ms=1 << 50)) for _ in range(4)]
stub.Coverage(reader_pb2.CoverageRequest())
print("asked", flush=True)
time.sleep(600)
"""

ATTACKS: dict[str, Callable[[Role], contextlib.AbstractContextManager[None]]] = {
    "unread answers": unread_answers,
    "unread columns": lambda role: unread_answers(role, reader_pb2.COLUMNS),
    "a bad regular expression whose client was killed": killed_regex,
    "waits for a far token": far_waits,
}


def calls_seen(role: Role) -> float:
    """Attacking calls that the server has put aside, or given up."""
    seen = role.metrics()
    return seen["tsdb_grpc_waiting_requests"] + seen['tsdb_reads_abandoned_total{reason="cancelled"}']


def check_bystander(attacked: Attacked, attack: str, *, calls: int, under_way: bool = False) -> None:
    """Check that another client is not affected by an attack, probes answer, and memory stays within its bound.

    under_way: measure only once the attack runs. With few calls the p99 is the slowest one, and the start of an attack
    with 64 requests at once would be that one.
    """
    store = attacked.running.store
    bound = attacked.answers_bytes_max + BESIDE_BYTES
    with Bystander(attacked.running.gateway, store, attacked.roles) as bystander:
        quiet = bystander.quiet(calls=calls)
        with RssPeak(store.process.pid) as rss, ATTACKS[attack](store):
            if under_way:
                wait_until(lambda: calls_seen(store) > 1, WITHIN_S)
            figures = bystander.attacked(quiet, calls=calls)
        quiet = bystander.quiet_again(quiet, figures, calls=calls)
        bystander.check_all_is_read_back()
    print(f"{attack}: RSS +{rss.grown_bytes / MIB:.0f} MiB of {bound / MIB:.0f}")
    check_unharmed(quiet, figures)
    assert rss.grown_bytes <= bound


def raw_reads(attacked: Attacked, *, reads: int, samples: int) -> None:
    """A number of concurrent reads of everything, all consumed: each is answered whole or refused by name, in
    bounds."""
    store = attacked.running.store
    bound = attacked.answers_bytes_max + BESIDE_BYTES
    with RssPeak(store.process.pid) as rss, stub_of(store) as stub:
        streams = [stub.Select(select_all(reader_pb2.RAW), timeout=WITHIN_S) for _ in range(reads)]
        with ThreadPoolExecutor(reads) as readers:
            outcomes = list(readers.map(outcome, streams))
    print(f"{reads} reads: {json.dumps({str(one): outcomes.count(one) for one in set(outcomes)})},", end=" ")
    print(f"RSS +{rss.grown_bytes / MIB:.0f} MiB of {bound / MIB:.0f}")
    assert set(outcomes) <= {samples, "answers_bytes"}
    assert samples in outcomes
    assert rss.grown_bytes <= bound


def outcome(stream: Any) -> int | str:
    """Samples of an answer read to its end, or the reason of its refusal."""
    try:
        return sum(int(message.trailer.samples) for message in stream)
    except grpc.RpcError as error:
        return from_rpc_error(error).reason


def check_term(attacked: Attacked, *attacks: str) -> None:
    """SIGTERM in the middle of attacks ends every process within its drain."""
    with contextlib.ExitStack() as stack:
        for attack in attacks:
            stack.enter_context(ATTACKS[attack](attacked.running.store))
        time.sleep(0.5)  # The attacks are under way.
        for role in attacked.roles:
            print(f"during {', '.join(attacks)}:", end=" ")
            assert role.terminate_within(attacked.drain_s) == 0
