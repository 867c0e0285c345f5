"""Attacks the promise that an OK means stored, on a real broker: stopped, killed, frozen, or of smaller records.

Eight senders write without pause; every fault finds requests in flight.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from stack.kafka import KafkaCluster
from support.counters import sample
from support.gateways import label_set
from support.log_reading import read_contents
from support.logs import LogFactory, wait_until
from support.senders import Senders, gateway_on, judge
from tsdb.log.interface import METRICS
from tsdb.log.settings import LogSettings
from tsdb.log.topics import topic_specs
from tsdb.model.clock import SystemClock
from tsdb.model.labels import series_id
from tsdb.ops.lifecycle import Deadline

SETTINGS = LogSettings(delivery_timeout_s=3.0, request_timeout_s=3.0)
PARTITIONS = 3


@pytest.fixture(scope="module")
def one() -> Iterator[KafkaCluster]:
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture
def logs(one: KafkaCluster) -> Iterator[LogFactory]:
    with LogFactory(f"kafka://{one.bootstrap}", f"g{uuid.uuid4().hex[:12]}.") as factory:
        yield factory


def _stop(cluster: KafkaCluster) -> Callable[[], None]:
    cluster.stop_broker(0)
    return lambda: cluster.start_broker(0)


def _kill(cluster: KafkaCluster) -> Callable[[], None]:
    cluster.kill_broker(0)
    return lambda: cluster.start_broker(0)


def _freeze(cluster: KafkaCluster) -> Callable[[], None]:
    cluster.suspend_broker(0)
    return lambda: cluster.resume_broker(0)


@pytest.mark.parametrize("strike", [_stop, _kill, _freeze])
def test_no_false_ok_and_sending_again_succeeds_after(
    one: KafkaCluster, logs: LogFactory, strike: Callable[[KafkaCluster], Callable[[], None]]
) -> None:
    logs.create(PARTITIONS)
    gateway = gateway_on(logs.open(SETTINGS), produce_timeout_s=3.0)
    with Senders(gateway) as senders:
        wait_until(lambda: senders.oks > 200 and senders.in_flight > 0)
        mend = strike(one)
        assert senders.in_flight > 0
        wait_until(lambda: senders.errors >= 8)
        mend()
        before = senders.oks
        wait_until(lambda: senders.oks > before + 200, within_s=60)
        senders.stop()
    one.wait_ready()
    assert gateway.pipeline.wait_idle(10)
    judge(read_contents(logs.open()), senders.senders)


def test_a_broker_that_takes_less_gets_halves_in_order(logs: LogFactory) -> None:
    admin = logs.topics()
    for spec in topic_specs(PARTITIONS, replication=1):
        small = {**spec.least, "max.message.bytes": 60_000} if spec.name == METRICS else spec.least
        admin.create(replace(spec, least=small))
    log = logs.open()
    before = sample("tsdb_ingest_records_halved_total")
    gateway = gateway_on(log)
    now_ms, count = SystemClock().now_ms(), 20_000
    one = label_set(0)
    ts_ms = now_ms - np.arange(count, dtype=np.int64) % 5000  # Each timestamp four times: the last must win.
    bits = np.random.default_rng(2).integers(0, 2**64, count, dtype=np.uint64)
    result = gateway.pipeline.write(
        [one], np.array([count], np.uint32), ts_ms, bits.view(np.float64), False, Deadline.after(30)
    )
    contents = read_contents(log)
    last = dict(zip(((series_id(one), int(t)) for t in ts_ms), bits.view(np.int64).tolist(), strict=True))
    assert contents.values == last
    assert all((token.partition, token.record_offset) in contents.held for token in result.tokens)
    assert sample("tsdb_ingest_records_halved_total") > before
