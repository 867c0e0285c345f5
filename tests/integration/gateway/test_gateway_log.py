"""The gateway over both logs: an OK means that the log has it, under concurrency, faults, drains and small brokers."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from ingest.rows import make_rows
from support.drills.senders import WRITERS, Senders, gateway_on, judge
from support.oracles.log_reading import read_contents
from support.servers.gateway_server import call, gateway_server, ingest_stub, write_request
from support.servers.gateways import label_set
from support.servers.logs import LogFactory, wait_until
from tsdb.log.interface import Log
from tsdb.model.clock import SystemClock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.model.labels import series_id
from tsdb.ops.lifecycle import Deadline

PARTITIONS = 3


@pytest.fixture
def log(log_factory: LogFactory) -> Log:
    log_factory.create(PARTITIONS)
    return log_factory.open()


def test_what_concurrent_writers_are_told_is_in_the_log(log: Log) -> None:
    with Senders(gateway_on(log), oks=30) as senders:
        senders.join()
    assert (senders.oks, senders.errors) == (30 * WRITERS, 0)
    judge(read_contents(log), senders.senders)


def test_a_large_request_is_split_and_read_back_bit_for_bit(log: Log) -> None:
    gateway = gateway_on(log)
    now_ms = SystemClock().now_ms()
    count = 150_000
    bits = np.random.default_rng(1).integers(0, 2**64, count, dtype=np.uint64)
    counts = np.array([count], np.uint32)
    ts_ms = now_ms - np.arange(count, dtype=np.int64)
    one = label_set(0)
    result = gateway.pipeline.write(make_rows([one], counts, ts_ms, bits.view(np.float64)), False, Deadline.after(30))
    assert result.samples == count
    assert len(result.tokens) >= 3
    contents = read_contents(log)
    want = dict(zip(((series_id(one), int(t)) for t in ts_ms), bits.view(np.int64).tolist(), strict=True))
    assert contents.values == want


def test_a_drain_over_grpc_loses_no_acknowledged_sample(log: Log) -> None:
    gateway = gateway_on(log)
    labels = [label_set(n) for n in range(20)]
    acked: list[tuple[int, float]] = []
    refused: list[TsdbError] = []
    base_ms = SystemClock().now_ms()

    with gateway_server(gateway.pipeline) as server:

        def write(writer: int) -> None:
            with ingest_stub(server.port) as stub:
                for index in range(10_000):
                    ts_ms = base_ms - writer - index * WRITERS
                    try:
                        call(stub, write_request(labels, [ts_ms] * 20, [float(index)] * 20))
                    except Unavailable as error:
                        refused.append(error)
                        return
                    acked.append((ts_ms, float(index)))

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(acked) > 50)
        server.close()
        gateway.close()
        assert server.join(30)
        assert gateway.join(30)
        for thread in threads:
            thread.join(30)
    assert len(refused) == WRITERS
    contents = read_contents(log)
    for ts_ms, value in acked:
        for one in labels:
            assert contents.values[series_id(one), ts_ms] == np.array([value]).view(np.int64)[0]
