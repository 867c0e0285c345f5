"""Attacks the promise of Watch: every applied sample once per offset, across reconnects, or an end that says so."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import grpc
import numpy as np
import pytest

from support.counters import sample
from support.data.feeder import Feeder
from support.data.heads import Sample
from support.servers.logs import LogFactory, wait_until
from support.servers.node import SMALL_HEADS, Gateway, Node, label_set, make_topics, refused, store_options
from tsdb.client.options import wire_matchers
from tsdb.client.watch import WatchState
from tsdb.model.errors import OutOfCoverage, Overloaded, Unavailable
from tsdb.reader.read_call import WATCHES_MAX
from tsdb.v1 import common_pb2, reader_pb2

WRITES = 400
SERIES = 30
NOW_MS = time.time_ns() // 1_000_000
ALL = '{__name__=~"m_.*"}'
SELECTOR = '{__name__="m"}'
SampleKey = tuple[int, int, int, int]
"""(partition, record offset, series id, ts_ms)."""


def request(*tokens: common_pb2.Token, selector: str = SELECTOR) -> reader_pb2.WatchRequest:
    made = reader_pb2.WatchRequest(matchers=wire_matchers(selector))
    getattr(made, "from").extend(tokens)  # A keyword of Python.
    return made


def watch(node: Node, *tokens: common_pb2.Token, selector: str = ALL) -> Any:
    """A stream of messages; bounded, so that one that never ends is an error."""
    return node.stub.Watch(request(*tokens, selector=selector), timeout=60.0)


@pytest.fixture
def factory(tmp_path: Any) -> Iterator[LogFactory]:
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as made:
        yield made


def test_every_sample_comes_once_per_offset_across_reconnects(log_factory: LogFactory) -> None:
    log_factory.create(3)
    log = log_factory.open()
    gateway = Gateway(log)
    labels = [label_set(number) for number in range(SERIES)]
    rng = random.Random(3)
    with Node(log).wait_ready_on_entry() as node:
        state = WatchState(SELECTOR)
        state.begin(node.client.coverage())
        now_ms = gateway.clock.now_ms()
        told: list[common_pb2.Token] = []
        writing = threading.Thread(target=lambda: told.extend(write_all(gateway, labels, now_ms)))
        writing.start()
        seen: Counter[SampleKey] = Counter()
        connections = 0
        # Each time is written twice, into other records: once per offset is not once per time.
        while seen.total() < 2 * WRITES * SERIES:
            connections += 1
            enough = seen.total() + 2 * WRITES * SERIES // 8  # A slow reader gets many samples in a message.
            stream: Any = node.stub.Watch(state.request(), timeout=60.0)
            for _ in range(rng.randint(1, 6)):
                batch = state.add(next(stream))
                if batch is not None:
                    rows = zip(batch.record_offsets, batch.series_ids, batch.ts_ms, strict=True)
                    seen.update((batch.partition, int(o), int(s), int(t)) for o, s, t in rows)
                    assert set(batch.canonical.values()) <= set(labels)
                if seen.total() >= enough:
                    break
            stream.cancel()
        writing.join()
    assert connections > 3
    assert seen.total() == len(seen) == 2 * WRITES * SERIES
    assert {(partition, offset) for partition, offset, _, _ in seen} == {(t.partition, t.record_offset) for t in told}
    assert len({(series, ts_ms) for _, _, series, ts_ms in seen}) == WRITES * SERIES


def write_all(gateway: Gateway, labels: list[bytes], now_ms: int) -> Iterator[common_pb2.Token]:
    for step in range(WRITES):
        for value in (1.0, 2.0):
            yield from gateway.write(labels, np.full(SERIES, now_ms + step), np.full(SERIES, value))


def small_ring(factory: LogFactory, ring_samples_max: int) -> tuple[Feeder, Node]:
    """A feeder of series 0 to 4 of one partition, and a node that remembers little."""
    log = make_topics(factory, 1)
    feeder = Feeder(log)
    feeder.announce(range(5), 0, NOW_MS)
    options = store_options(limits=replace(SMALL_HEADS, ring_samples_max=ring_samples_max))
    return feeder, Node(log, options)


def samples(count: int, step: int = 0) -> list[Sample]:
    return [(number % 5, NOW_MS + step + number, float(number)) for number in range(count)]


def test_a_resume_point_out_of_the_ring_is_out_of_range_and_says_which(factory: LogFactory) -> None:
    feeder, node = small_ring(factory, 100)
    with node.wait_ready_on_entry():
        for step in range(10):
            feeder.samples(0, samples(40), NOW_MS + step)
        node.wait_ready()
        token = common_pb2.Token(topic_id=node.store.topic_id, partition=0, record_offset=3)
        with refused(OutOfCoverage, "watch_ring") as errors:
            next(watch(node, token))
        assert errors[0].metadata == {"partition": "0", "last_record_offset": "3"}
        token.record_offset = 8
        message = next(watch(node, token))
        assert set(np.frombuffer(message.record_offsets, "<i8").tolist()) == {9}


def test_a_watcher_that_does_not_read_is_cut_off_with_its_last_offset_and_holds_nobody_up(factory: LogFactory) -> None:
    feeder, node = small_ring(factory, 20_000)
    with node.wait_ready_on_entry():
        stream = watch(node)
        next(stream)  # A heartbeat: the stream has begun.
        for round_ in range(8):
            # gRPC buffers less than these megabytes, which nobody reads.
            feeder.many(0, [(NOW_MS, samples(10_000, step)) for step in range(20 * round_, 20 * round_ + 20)])
        node.wait_ready()
        assert node.status().state.applied_offset == 159
        seen: list[int] = []
        with refused(OutOfCoverage, "watch_ring") as errors:
            for message in stream:
                seen += np.unique(np.frombuffer(message.record_offsets, "<i8")).tolist()
        assert seen == list(range(len(seen))), "a gap, or an offset twice"
        assert len(seen) < 160
        assert int(errors[0].metadata["last_record_offset"]) == (seen[-1] if seen else -1)


def test_a_store_that_ends_says_so_to_every_watch(factory: LogFactory) -> None:
    _, node = small_ring(factory, 100)
    with node.wait_ready_on_entry():
        streams = [watch(node) for _ in range(3)]
        for stream in streams:
            next(stream)
        node.store.close()
        for stream in streams:
            with refused(Unavailable, "draining"):
                list(stream)


def test_watches_over_their_limit_are_refused_and_reads_go_on(factory: LogFactory) -> None:
    feeder, node = small_ring(factory, 100)
    before = sample("tsdb_store_watches_refused_total")
    with node.wait_ready_on_entry():
        streams = [watch(node) for _ in range(WATCHES_MAX)]
        for stream in streams:
            next(stream)
        with refused(Overloaded, "watches_limit") as errors:
            next(watch(node))
        assert errors[0].metadata == {"limit": str(WATCHES_MAX)}
        assert isinstance(errors[0], Overloaded)
        assert errors[0].retry_after_s is not None
        assert sample("tsdb_store_watches_refused_total") == before + 1
        feeder.samples(0, samples(5), NOW_MS)
        node.wait_ready()
        assert node.client.select("m_0", NOW_MS, NOW_MS + 10).samples == 2
        streams[0].cancel()
        wait_until(lambda: begins(node))


def begins(node: Node) -> bool:
    """Whether a further watch is accepted. It ends at once."""
    stream = watch(node)
    try:
        next(stream)
    except grpc.RpcError:
        return False
    stream.cancel()
    return True
