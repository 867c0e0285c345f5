"""The writer: runs end at a failed write, and a write counts as fresh only when a read shows it whole."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.counters import sample
from support.fakes.fake_reader import FakeServer
from support.servers.logs import wait_until
from tsdb.canary.layout import Layout
from tsdb.canary.ledger import Ledger
from tsdb.canary.writing import Writer
from tsdb.client import Client, InvalidRequest, connect
from tsdb.model.clock import SystemClock

LAYOUT = Layout("c", 500, 2)
WITHIN_S = 60.0


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    with connect(server.address, timeout_s=5.0) as opened:
        yield opened


def writer_over(client: Client, ledger: Ledger) -> Writer:
    return Writer(client, client, LAYOUT, ledger, SystemClock())


def failures(path: str, reason: str) -> float:
    return sample("tsdb_canary_check_failures_total", path=path, reason=reason)


def test_a_failed_write_ends_the_run_and_is_counted(server: FakeServer, client: Client) -> None:
    ledger = Ledger(LAYOUT.period_ms)
    writer = writer_over(client, ledger)
    before = failures("write", "labels_too_long")
    writer.write(1000)
    server.fail = [InvalidRequest("too long", reason="labels_too_long")]
    with pytest.raises(InvalidRequest):
        writer.write(1500)
    assert failures("write", "labels_too_long") == before + 1
    assert ledger.run_before(2000) == 0
    writer.write(2000)
    assert ledger.run_before(2500) == 1


def test_a_visible_write_is_measured(client: Client) -> None:
    writer = writer_over(client, Ledger(LAYOUT.period_ms))
    before = sample("tsdb_canary_freshness_seconds_count")
    writer.write(1000)
    writer.measure(1000)
    assert sample("tsdb_canary_freshness_seconds_count") == before + 1


@pytest.mark.parametrize("fault", ["not_visible", "differs"])
def test_a_write_that_is_not_shown_whole_is_a_failure(server: FakeServer, client: Client, fault: str) -> None:
    writer = writer_over(client, Ledger(LAYOUT.period_ms))
    before, fresh = failures("freshness", fault), sample("tsdb_canary_freshness_seconds_count")
    writer.write(1000)
    rows = server.samples[LAYOUT.labels[0]]
    rows[0] = (1000, 7.0) if fault == "differs" else (500, 7.0)
    writer.measure(1000)
    assert failures("freshness", fault) == before + 1
    assert sample("tsdb_canary_freshness_seconds_count") == fresh


def test_the_thread_writes_at_multiples_of_the_period_until_it_is_closed(server: FakeServer, client: Client) -> None:
    ledger = Ledger(LAYOUT.period_ms)
    writer = writer_over(client, ledger)
    writer.start()
    wait_until(lambda: len(server.samples[LAYOUT.labels[1]]) >= 3, WITHIN_S)
    writer.close()
    assert writer.join(WITHIN_S)
    assert writer.failure() is None
    assert {ts_ms % LAYOUT.period_ms for ts_ms, _ in server.samples[LAYOUT.labels[1]]} == {0}
