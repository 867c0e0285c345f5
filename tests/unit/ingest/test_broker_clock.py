"""A gateway with a wrong clock refuses nothing for good: it is unready, and says so until its clock is right."""

from __future__ import annotations

import numpy as np
import pytest

from ingest.broker_clock import AGAIN_S, FRESH_S, BrokerClock
from ingest.gateway import Gateway
from ingest.limits import IngestLimits
from ingest.remote_write.protocol import PATH, remote_write
from ingest.rows import make_rows
from support.counters import sample
from support.fakes.fake_log import FakeLog, Fault
from support.senders.remote_write import request_1, snappy
from support.senders.write_receiver import write_server
from support.servers.gateways import NOW_MS, PARTITIONS, Bench, label_set
from tsdb.log.interface import METRICS
from tsdb.model.clock import ManualClock
from tsdb.model.errors import InvalidRequest, TsdbError, Unavailable
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION
from tsdb.ops.lifecycle import Deadline

MINUTE_MS = 60_000
NOW_ARRAY = np.array([NOW_MS])
LIMIT_MS = PRODUCTION.gateway_ahead_ms // 2
AHEAD = "tsdb_ingest_clock_ahead_seconds"
TICKS = "tsdb_ingest_clock_ticks_total"


class Compared:
    """The clock of a gateway, and partitions whose appends take `took_ms`."""

    def __init__(self, partitions: int = 5) -> None:
        self.clock = ManualClock(NOW_MS)
        self.log = FakeLog(partitions, self.clock)
        self.compared = BrokerClock(self.log, partitions, PRODUCTION.gateway_ahead_ms, self.clock)
        self.compared.watch()

    def append(self, partition: int, broker_ahead_ms: int, took_ms: int = 0) -> str:
        """The problem after an append whose broker time was taken when it was sent."""
        sent_ms = self.clock.now_ms()
        self.clock.advance(took_ms)
        self.compared.measured(partition, sent_ms, sent_ms + broker_ahead_ms)
        return self.compared.problem()[0]


@pytest.mark.parametrize(
    ("broker_ahead_ms", "took_ms", "problem"),
    [
        (0, 0, ""),
        (LIMIT_MS, 0, ""),
        (-LIMIT_MS, 0, ""),
        (LIMIT_MS + 1, 0, "clock"),
        (-LIMIT_MS - 1, 0, "clock"),
        (10 * MINUTE_MS, 0, "clock"),
        (-10 * MINUTE_MS, 0, "clock"),
        (10 * MINUTE_MS, 10 * MINUTE_MS, ""),  # A broker that took the time at the end of a slow append.
        (10 * MINUTE_MS, 5 * MINUTE_MS, "clock"),
        (-10 * MINUTE_MS, 10 * MINUTE_MS, "clock"),
    ],
)
def test_a_clock_is_wrong_beyond_what_the_time_of_an_append_explains(
    broker_ahead_ms: int, took_ms: int, problem: str
) -> None:
    assert Compared().append(0, broker_ahead_ms, took_ms) == problem


def test_the_metric_has_the_sign_of_the_gateway() -> None:
    one = Compared()
    found = []
    for broker_ahead_ms in (10 * MINUTE_MS, -10 * MINUTE_MS, 0):
        one.compared.measured(0, NOW_MS, NOW_MS + broker_ahead_ms)
        found.append(sample(AHEAD))
    assert found == [-600, 600, 0]


def test_one_broker_with_a_wrong_clock_stops_no_gateway() -> None:
    one = Compared()
    for partition in range(3):
        assert one.append(partition, 0) == ""
    for partition in (3, 4):
        assert one.append(partition, 10 * MINUTE_MS) == ""
    assert one.append(2, 10 * MINUTE_MS) == "clock"
    assert one.append(4, 0) == ""


def test_a_wrong_clock_is_measured_again_at_a_bounded_rate_until_it_is_right() -> None:
    one = Compared()
    one.log.broker_ahead_ms = 10 * MINUTE_MS
    for partition in range(5):
        one.append(partition, 10 * MINUTE_MS)
    before = sample(TICKS)
    for _ in range(10):
        with pytest.raises(Unavailable, match="600000 ms behind most brokers; limit is 150000 ms") as caught:
            one.compared.check()
        assert caught.value.reason == "clock"
        assert caught.value.retry_after_s
    assert sample(TICKS) == before
    one.clock.step(10 * MINUTE_MS)
    one.log.broker_ahead_ms = 0
    one.clock.advance(round(AGAIN_S * 1000))
    one.compared.problem()  # A probe of readiness is enough.
    assert one.compared.problem() == ("", "")
    one.compared.check()


@pytest.mark.parametrize("change", ["time", "step"])
def test_a_measurement_is_fresh_for_some_seconds_and_until_a_clock_steps(change: str) -> None:
    one = Compared()
    assert not one.compared.fresh
    one.append(0, 0)
    assert one.compared.fresh
    if change == "time":
        one.clock.advance(round(FRESH_S * 1000))
    else:
        one.clock.step(-10 * MINUTE_MS)
    assert not one.compared.fresh


def test_all_who_wait_for_one_measurement_get_its_end() -> None:
    one = Compared()
    ends: list[TsdbError | None] = []
    one.log.hold(METRICS)
    for _ in range(3):
        one.compared.measure(ends.append)
    assert (ends, one.log.waiting) == ([], 1)
    one.log.release()
    assert ends == [None] * 3
    one.log.plan = lambda topic, partition, value: Fault(Unavailable("the log is away"), raised=True)
    one.compared.measure(ends.append)
    assert isinstance(ends[-1], Unavailable)


def gateway(broker_ahead_ms: int) -> tuple[Bench, Gateway]:
    """A started gateway, and a bench over its pipeline."""
    bench = Bench()
    bench.log.broker_ahead_ms = broker_ahead_ms
    made = Gateway(bench.log, PlacementRule(), PARTITIONS, PRODUCTION, IngestLimits(), bench.clock)
    made.start()
    bench.pipeline = made.pipeline
    return bench, made


@pytest.mark.parametrize("slow_ms", [10 * MINUTE_MS, 6 * MINUTE_MS, 6 * 24 * 60 * MINUTE_MS])
@pytest.mark.parametrize("partial", [True, False])
def test_the_first_request_of_a_slow_gateway_is_to_be_sent_again_and_not_dropped(slow_ms: int, partial: bool) -> None:
    bench, made = gateway(slow_ms)
    for _ in range(2):
        with pytest.raises(Unavailable) as caught:
            bench.write([label_set(0)], ts_ms=[NOW_MS + slow_ms], partial=partial)
        assert caught.value.reason == "clock"
    assert made.problem()[0] == "clock"
    assert bench.pipeline.inflight_bytes == 0
    assert len(bench.log.decoded().series_id) == 0
    bench.clock.step(slow_ms)
    bench.log.broker_ahead_ms = 0
    bench.clock.advance(round(AGAIN_S * 1000))
    made.problem()
    assert made.problem() == ("", "")
    assert bench.write([label_set(0)], ts_ms=[NOW_MS + slow_ms], partial=partial).samples == 1


def test_a_gateway_days_fast_finds_good_samples_too_old_and_drops_none() -> None:
    fast_ms = 6 * 24 * 60 * MINUTE_MS
    bench, _ = gateway(-fast_ms)
    with pytest.raises(Unavailable) as caught:
        bench.write([label_set(0)], ts_ms=[NOW_MS - fast_ms])
    assert caught.value.reason == "clock"


def test_a_fast_gateway_accepts_what_is_stored_and_then_leaves_its_senders_to_others() -> None:
    bench, made = gateway(-10 * MINUTE_MS)
    assert bench.write([label_set(0)], ts_ms=[NOW_MS - 10 * MINUTE_MS]).samples == 1
    assert made.problem()[0] == "clock"
    with pytest.raises(Unavailable, match="ahead of most brokers"):
        bench.write([label_set(0)], ts_ms=[NOW_MS - 10 * MINUTE_MS])


def test_samples_out_of_time_are_refused_by_name_where_the_clock_is_right() -> None:
    bench, made = gateway(0)
    ticks = sample(TICKS)
    for ts_ms in (5, NOW_MS + 10 * MINUTE_MS):
        with pytest.raises(InvalidRequest):
            bench.write([label_set(0)], ts_ms=[ts_ms])
    assert sample(TICKS) == ticks + 1, "one measurement is enough for some seconds"
    assert made.problem() == ("", "")


def test_without_a_log_no_sample_is_refused_for_its_time() -> None:
    bench, _ = gateway(0)
    bench.log.plan = lambda topic, partition, value: Fault(Unavailable("the log is away"))
    with pytest.raises(Unavailable, match="the log is away"):
        bench.write([label_set(0)], ts_ms=[NOW_MS + 10 * MINUTE_MS])
    assert bench.pipeline.inflight_bytes == 0


def test_a_drain_waits_for_a_measurement() -> None:
    bench, made = gateway(0)
    bench.log.hold(METRICS)
    rows = make_rows([label_set(0)], None, NOW_ARRAY + 10 * MINUTE_MS, NOW_ARRAY.astype(float))
    answer = bench.pipeline.submit(rows, True, Deadline.after(10.0))
    made.close()
    assert made.join(0.01) is False
    bench.log.release()
    assert isinstance(answer.exception(1.0), InvalidRequest) or answer.result().refused_series == 1
    assert made.join(60.0)


def test_a_sender_over_http_is_sent_to_another_gateway() -> None:
    bench, _ = gateway(10 * MINUTE_MS)
    with write_server(remote_write, bench=bench) as server:
        body = snappy(request_1([({"__name__": "m"}, [(NOW_MS + 10 * MINUTE_MS, 1.0)])]))
        answer = server.post(PATH, body)
    assert (answer.status, answer.headers["connection"]) == (503, "close")
    assert int(answer.headers["retry-after"]) >= 1
    assert "clocks of gateway and broker differ" in answer.text
