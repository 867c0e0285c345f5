"""A real broker that takes smaller records than we think."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from ingest.rows import make_rows
from support.counters import sample
from support.drills.senders import gateway_on
from support.oracles.log_reading import read_contents
from support.servers.gateways import label_set
from support.servers.logs import LogFactory
from support.shared_servers import SharedBroker
from tsdb.log.interface import METRICS
from tsdb.log.topics import topic_specs
from tsdb.model.clock import SystemClock
from tsdb.model.labels import series_id
from tsdb.ops.lifecycle import Deadline

PARTITIONS = 3


@pytest.fixture
def logs(kafka: SharedBroker) -> Iterator[LogFactory]:
    with LogFactory(f"kafka://{kafka.bootstrap}", f"g{uuid.uuid4().hex[:12]}.") as factory:
        yield factory


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
    rows = make_rows([one], np.array([count], np.uint32), ts_ms, bits.view(np.float64))
    result = gateway.pipeline.write(rows, False, Deadline.after(30))
    contents = read_contents(log)
    last = dict(zip(((series_id(one), int(t)) for t in ts_ms), bits.view(np.int64).tolist(), strict=True))
    assert contents.values == last
    assert all((token.partition, token.record_offset) in contents.held for token in result.tokens)
    assert sample("tsdb_ingest_records_halved_total") > before
