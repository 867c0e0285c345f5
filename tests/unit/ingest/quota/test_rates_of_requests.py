"""Rates of sources and tokens, through the write path and through a served gateway."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from ingest.grpc.service import ingest_service
from ingest.limits import IngestLimits, Rate, RateLimits, SeriesLimits
from ingest.quota.token_quota import TokenQuota
from support.counters import sample
from support.servers.gateways import Bench, label_set
from tsdb.log.interface import METRICS, SERIES
from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.server import GrpcServer, build_server
from tsdb.v1 import ingest_pb2, ingest_pb2_grpc


def bench(rate: Rate, *, burst_s: float = 1.0, file: Path | None = None) -> Bench:
    return Bench(limits=IngestLimits(source_rates=RateLimits(rate, burst_s=burst_s), limits_file=file))


def series(count: int, instance: int = 0) -> list[bytes]:
    return [label_set(number, instance=instance) for number in range(count)]


def records(at: Bench) -> int:
    return sum(marks.high for topic in (METRICS, SERIES) for marks in at.log.watermarks(topic, range(4)).values())


def test_a_source_over_its_rate_is_refused_with_a_hint_and_nothing_is_appended() -> None:
    at = bench(Rate(samples_per_s=10))
    at.write(series(30))
    held = records(at)
    with pytest.raises(Overloaded) as caught:
        at.write([*series(1), label_set(99)])
    error = caught.value
    assert error.reason == "source_samples_limit"
    assert error.retry_after_s == pytest.approx(2)
    for part in ('source instance="i0",job="j"', "10 samples a second", "source_samples_per_s", "limits_file"):
        assert part in error.message
    assert records(at) == held
    at.clock.advance(2_001)
    assert at.write(series(1)).samples == 1


def test_a_limited_source_does_not_slow_the_others() -> None:
    at = bench(Rate(requests_per_s=1))
    at.write(series(5))
    for _ in range(3):
        with pytest.raises(Overloaded):
            at.write(series(5))
        at.clock.advance(10)
    assert at.write(series(5, instance=1)).samples == 5


def test_partial_stores_the_sources_within_their_rate_and_lists_the_others() -> None:
    at = bench(Rate(samples_per_s=10))
    at.write(series(30))
    result = at.write([*series(20), *series(4, instance=1)], partial=True)
    assert (result.samples, result.refused_series, result.refused_samples) == (4, 20, 20)
    assert result.retry_after_s == pytest.approx(2)
    assert [(offender.series_index, offender.reason) for offender in result.offenders] == [(0, "source_samples_limit")]


def test_partial_with_no_row_left_is_refused_whole_to_be_sent_again() -> None:
    at = bench(Rate(samples_per_s=10))
    at.write(series(30))
    with pytest.raises(Overloaded) as caught:
        at.write([b"bad", *series(5)], partial=True)
    assert caught.value.reason == "source_samples_limit"
    assert caught.value.retry_after_s == pytest.approx(2)


def test_bad_rows_come_before_rates() -> None:
    at = bench(Rate(samples_per_s=10))
    at.write(series(30))
    with pytest.raises(InvalidRequest):
        at.write([b"bad", *series(5)])


def test_refused_samples_are_counted_by_reason() -> None:
    at = bench(Rate(requests_per_s=1))
    at.write(series(3))
    names = [("tsdb_ingest_refused_samples_total", 3), ("tsdb_ingest_refused_requests_total", 1)]
    before = [sample(name, reason="source_requests_limit") for name, _ in names]
    with pytest.raises(Overloaded):
        at.write(series(3))
    after = [sample(name, reason="source_requests_limit") for name, _ in names]
    assert after == [count + more for count, (_, more) in zip(before, names, strict=True)]


def test_new_series_over_a_rate_are_not_announced() -> None:
    at = bench(Rate(samples_per_s=10))
    at.write(series(50))
    held = records(at)
    for first in range(100, 1_000, 50):
        with pytest.raises(Overloaded):
            at.write([label_set(number) for number in range(first, first + 50)])
    assert records(at) == held


def test_a_rate_is_switched_on_and_off_by_the_file(tmp_path: Path) -> None:
    file = tmp_path / "limits.toml"
    file.write_text("")
    at = bench(Rate(), file=file)
    for _ in range(5):
        at.write(series(5))
    file.write_text('rate_burst_s = 1\n[[source]]\nlabels = {job = "j", instance = "i0"}\nrequests_per_s = 1\n')
    at.clock.advance(1_000)
    at.write(series(5))
    with pytest.raises(Overloaded, match=r"requests_per_s of its \[\[source\]\]"):
        at.write(series(5))
    assert at.write(series(5, instance=1)).samples == 5
    file.unlink()
    at.clock.advance(1)
    with pytest.raises(Overloaded):
        at.write(series(5))
    file.write_text("# none\n")
    at.clock.advance(1_000)
    assert [at.write(series(5)).samples for _ in range(5)] == [5] * 5


class Served:
    """A gateway behind a gRPC server that accepts every token; `write` returns the error of a refused call."""

    def __init__(self, rates: RateLimits) -> None:
        self.bench = Bench(limits=IngestLimits(token_rates=rates, series=SeriesLimits()))
        tokens = TokenQuota(self.bench.pipeline.limits_now.token_rates, self.bench.clock)
        service = ingest_service(self.bench.pipeline, tokens)
        self.server: GrpcServer = build_server([service], host="127.0.0.1", port=0, health=Health())

    def write(self, token: str, samples: int) -> Overloaded | None:
        now = np.full(samples, self.bench.clock.now_ms(), "<i8").tobytes()
        request = ingest_pb2.WriteRequest(labels=series(samples), ts_ms=now, values=bytes(8 * samples))
        with grpc.insecure_channel(f"127.0.0.1:{self.server.port}") as channel:
            stub = ingest_pb2_grpc.IngestStub(channel)
            try:
                stub.Write(request, metadata=(("authorization", f"Bearer {token}"),), timeout=60)
            except grpc.RpcError as error:
                refused = from_rpc_error(error)
                assert isinstance(refused, Overloaded)
                return refused
        return None


@pytest.fixture
def served() -> Iterator[Served]:
    digest = hashlib.sha256(b"a").digest()
    own = {int.from_bytes(digest[:8], "little"): Rate(samples_per_s=10, name="team-a")}
    gateway = Served(RateLimits(Rate(requests_per_s=3), own, burst_s=1))
    with gateway.server:
        yield gateway


def test_a_token_over_its_samples_is_refused_before_its_request_is_read(served: Served) -> None:
    assert served.write("a", 30) is None
    accepted = sample("tsdb_ingest_requests_total")
    error = served.write("a", 1)
    assert error is not None
    assert error.reason == "token_samples_limit"
    assert error.retry_after_s == pytest.approx(2)
    assert "token 'team-a' sends more than 10 samples a second" in error.message
    assert sample("tsdb_ingest_requests_total") == accepted
    assert served.write("b", 30) is None, "another token is not slowed"
    served.bench.clock.advance(2_001)
    assert served.write("a", 1) is None


def test_a_token_over_its_requests_is_refused(served: Served) -> None:
    assert [served.write("b", 1) for _ in range(3)] == [None] * 3
    error = served.write("b", 1)
    assert error is not None
    assert error.reason == "token_requests_limit"
