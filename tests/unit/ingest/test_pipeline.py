"""The pipeline: accepted samples are on the log, complete and in order; others are refused by name and counted."""

from __future__ import annotations

import contextlib
import gc
import struct
import weakref
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ingest.grpc.service import written
from ingest.limits import IngestLimits
from ingest.pipeline import AcceptedWrite
from ingest.rows import make_rows
from support.counters import sample
from support.fakes.fake_log import Fault
from support.servers.gateways import NOW_MS, PARTITIONS, Bench, label_set
from tsdb.chain import Link
from tsdb.log.chains import chain_of
from tsdb.log.interface import METRICS
from tsdb.model.errors import ConfigMismatch, InvalidRequest, Overloaded, TsdbError, Unavailable, WrongTopic
from tsdb.model.labels import series_id
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import DEMO, PRODUCTION
from tsdb.ops.lifecycle import Deadline

REFUSED = "tsdb_ingest_refused_samples_total"
REFUSED_REQUESTS = "tsdb_ingest_refused_requests_total"


def test_accepted_samples_are_on_the_log_bit_for_bit() -> None:
    bench = Bench()
    odd = [-0.0, float("inf"), struct.unpack("<d", struct.pack("<Q", 0x7FF0000000000123))[0], float("nan"), 1e-320]
    labels = [label_set(number) for number in range(5)]
    result = bench.write(labels, values=np.array(odd))
    assert result.samples == 5
    bits = np.array(odd).view(np.int64).tolist()
    assert bench.log.samples() == {(series_id(one), NOW_MS): bit for one, bit in zip(labels, bits, strict=True)}


def test_samples_go_to_the_partition_of_their_placement() -> None:
    bench = Bench()
    labels = [label_set(0, instance=instance) for instance in range(20)]
    bench.write(labels)
    for one in labels:
        place = PlacementRule().place(one)
        ids = bench.log.decoded(partition_of(place.placement, PARTITIONS)).series_id.tolist()
        assert series_id(one) in ids


def test_one_record_per_partition_and_request_each_with_its_token() -> None:
    bench = Bench()
    labels = [label_set(number, instance=number % 16) for number in range(200)]
    bench.write(labels)
    result = bench.write(labels)
    partitions = [token.partition for token in result.tokens]
    assert partitions == sorted(set(partitions))
    assert {(token.partition, token.record_offset) for token in result.tokens} == {
        (record.partition, record.offset) for record in bench.log.of(METRICS) if record.offset == 1
    }
    assert {token.topic_id for token in result.tokens} == {"id-of-metrics"}


def test_a_scraper_that_sends_in_another_order_repeats_the_same_id_vectors() -> None:
    bench = Bench()
    labels = [label_set(number, name=f"m{number % 7}") for number in range(50)]
    bench.write(labels)
    bench.write(labels[::-1])
    decoded = bench.log.decoded()
    first, second = (decoded.id_hash[decoded.pack_start[i] : decoded.pack_start[i + 1]] for i in (0, 1))
    assert first.tolist() == second.tolist()
    assert len(first) == 7


def test_labels_in_any_order_are_one_series() -> None:
    bench = Bench()
    bench.write([b"__name__\xffm\xffjob\xffj", b"job\xffj\xff__name__\xffm"], ts_ms=[NOW_MS, NOW_MS + 1])
    assert set(bench.log.decoded().series_id.tolist()) == {series_id(b"__name__\xffm\xffjob\xffj")}


def test_of_equal_timestamps_in_one_request_the_last_wins() -> None:
    bench = Bench()
    one, other = label_set(1), label_set(2)
    bench.write([one, other, one], counts=[2, 1, 1], ts_ms=[NOW_MS] * 4, values=[1.0, 2.0, 3.0, 4.0])
    assert bench.log.samples()[series_id(one), NOW_MS] == np.array([4.0]).view(np.int64)[0]
    assert bench.log.decoded().ts_ms.size == 4


def test_records_of_a_request_begin_one_chain() -> None:
    bench = Bench(limits=IngestLimits(record_bytes_max=2000))
    bench.write([label_set(1)], counts=[1000], ts_ms=[NOW_MS - index for index in range(1000)])
    chain = chain_of("store", lambda: NOW_MS)
    links = {chain.read(record.headers) for record in bench.log.of(METRICS)}
    assert links == {Link(created_at_ms=NOW_MS)}
    assert dict(bench.log.of(METRICS)[0].headers)[chain.source] == b"gateway"


def test_large_requests_are_split_and_the_last_of_equal_timestamps_still_wins() -> None:
    bench = Bench(limits=IngestLimits(record_bytes_max=2000))
    one = label_set(1)
    times = [NOW_MS - index % 7 for index in range(1000)]
    result = bench.write([one], counts=[1000], ts_ms=times)
    records = bench.log.of(METRICS)
    assert len(records) > 10
    assert max(len(record.value) for record in records) <= 2000
    assert [token.record_offset for token in result.tokens] == list(range(len(records)))
    last = {(series_id(one), ts_ms): value for value, ts_ms in enumerate(times)}
    got = {key: float(np.int64(bits).view(np.float64)) for key, bits in bench.log.samples().items()}
    assert got == last


@pytest.mark.parametrize("raised", [True, False])
def test_what_the_broker_finds_too_large_is_halved_and_keeps_its_order(raised: bool) -> None:
    bench = Bench(limits=IngestLimits(record_bytes_max=60_000))
    one = label_set(1)
    # Five records, of which the middle one is refused; those behind it must land again, behind its halves.
    error = InvalidRequest("too large", reason="record_too_large")
    seen: list[int] = []

    def plan(topic: str, partition: int, value: bytes) -> Fault | None:
        if topic == METRICS:
            seen.append(len(value))
        return Fault(error, raised=raised) if topic == METRICS and len(seen) == 3 else None

    bench.log.plan = plan
    times = [NOW_MS - index % 7 for index in range(10_000)]
    bench.write([one], counts=[10_000], ts_ms=times)
    last = {(series_id(one), ts_ms): float(value) for value, ts_ms in enumerate(times)}
    got = {key: float(np.int64(bits).view(np.float64)) for key, bits in bench.log.samples().items()}
    assert got == last


def test_tokens_after_halving_name_records_that_hold_every_sample() -> None:
    bench = Bench()
    bench.log.record_bytes_max = 20_000
    labels = [label_set(number, instance=number % 3) for number in range(4000)]
    result = bench.write(labels)
    held: set[int] = set()
    for token in result.tokens:
        decoded = bench.log.decoded(token.partition)
        start, end = decoded.sample_start[token.record_offset], decoded.sample_start[token.record_offset + 1]
        held |= set(decoded.series_id[start:end].tolist())
    assert held == {series_id(one) for one in labels}


def test_the_size_that_the_broker_takes_is_learned() -> None:
    bench = Bench()
    bench.log.record_bytes_max = 30_000
    labels = [label_set(number) for number in range(4000)]
    bench.write(labels)
    before = sample("tsdb_ingest_records_halved_total")
    bench.write(labels)
    assert sample("tsdb_ingest_records_halved_total") == before


def test_one_sample_too_large_for_the_broker_is_refused_by_name() -> None:
    bench = Bench()
    bench.log.record_bytes_max = 10
    with pytest.raises(InvalidRequest, match=r"one sample .* series m\{.*n=\"7\"") as caught:
        bench.write([label_set(7)])
    assert caught.value.reason == "record_too_large"


def test_a_batch_is_refused_whole_for_one_bad_row_and_nothing_is_written() -> None:
    bench = Bench()
    before = sample(REFUSED, reason="in_refused_request"), sample(REFUSED, reason="too_old")
    with pytest.raises(
        InvalidRequest, match=r"series_index 1: timestamp .* is 5.0 days old; the limit is 5 days; series m\{"
    ):
        bench.write([label_set(0), label_set(1)], counts=[3, 2], ts_ms=[NOW_MS] * 4 + [NOW_MS - 432_000_001])
    assert bench.log.records == []
    after = sample(REFUSED, reason="in_refused_request"), sample(REFUSED, reason="too_old")
    assert (after[0] - before[0], after[1] - before[1]) == (3, 2)


@pytest.mark.parametrize(
    ("ts_ms", "reason"),
    [
        (NOW_MS - PRODUCTION.accept_past_ms, None),
        (NOW_MS - PRODUCTION.accept_past_ms - 1, "too_old"),
        (NOW_MS + PRODUCTION.gateway_ahead_ms, None),
        (NOW_MS + PRODUCTION.gateway_ahead_ms + 1, "too_far_ahead"),
        (-(2**63), "too_old"),
        (2**63 - 1, "too_far_ahead"),
    ],
)
def test_both_ends_of_accepted_time_are_accepted(ts_ms: int, reason: str | None) -> None:
    bench = Bench()
    if reason is None:
        assert bench.write([label_set(0)], ts_ms=[ts_ms]).samples == 1
        return
    before = sample(REFUSED, reason=reason), sample(REFUSED_REQUESTS, reason=reason)
    with pytest.raises(InvalidRequest) as caught:
        bench.write([label_set(0)], ts_ms=[ts_ms])
    assert caught.value.reason == reason
    assert (sample(REFUSED, reason=reason), sample(REFUSED_REQUESTS, reason=reason)) == (before[0] + 1, before[1] + 1)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "labels_empty"),
        (b"__name__", "labels_malformed"),
        (b"a\xffb", "labels_malformed"),
        (b"__name__\xff", "labels_malformed"),
        (b"__name__\xffm\xffa\xff\xc3", "labels_malformed"),
        (b"__name__\xffm\xff__resolution__\xff1", "labels_reserved"),
        (b"__name__\xffm\xffa\xff1\xffa\xff2", "labels_duplicate"),
        (b"__name__\xffm" + b"".join(b"\xffa%d\xff1" % i for i in range(64)), "labels_too_many"),
        (b"__name__\xffm\xffa\xff" + b"x" * 2049, "labels_too_long"),
    ],
)
def test_bad_labels_are_refused_and_counted(raw: bytes, reason: str) -> None:
    bench = Bench()
    before = sample(REFUSED, reason=reason)
    with pytest.raises(InvalidRequest) as caught:
        bench.write([label_set(0), raw])
    assert caught.value.reason == reason
    assert caught.value.metadata["series_index"] == "1"
    assert bench.log.records == []
    assert sample(REFUSED, reason=reason) == before + 1


def test_partial_writes_the_good_series_and_lists_the_others() -> None:
    bench = Bench()
    before = sample(REFUSED, reason="too_old")
    result = bench.write(
        [label_set(0), b"junk", label_set(2)], counts=[1, 2, 2], ts_ms=[NOW_MS, NOW_MS, NOW_MS, NOW_MS, 0], partial=True
    )
    assert (result.samples, result.refused_samples, result.refused_series) == (1, 4, 2)
    assert [(o.series_index, o.reason) for o in result.offenders] == [(1, "labels_malformed"), (2, "too_old")]
    assert set(bench.log.samples()) == {(series_id(label_set(0)), NOW_MS)}
    assert sample(REFUSED, reason="too_old") == before + 2


def test_partial_with_nothing_good_appends_nothing() -> None:
    bench = Bench()
    result = bench.write([b"junk"], partial=True)
    assert (result.samples, result.tokens, result.refused_series) == (0, [], 1)
    assert bench.log.records == []


def test_a_refused_row_does_not_announce_its_series() -> None:
    bench = Bench()
    bench.write([label_set(0), label_set(1)], ts_ms=[NOW_MS, 0], partial=True)
    assert [a.canonical for a in bench.log.announcements()] == [label_set(0)]


def test_offenders_are_bounded_but_all_are_counted() -> None:
    bench = Bench()
    result = bench.write([label_set(n) for n in range(100)], ts_ms=[0] * 100, partial=True)
    assert (len(result.offenders), result.refused_series) == (16, 100)
    with pytest.raises(InvalidRequest, match=r"and 99 more series") as caught:
        bench.write([label_set(n) for n in range(100)], ts_ms=[0] * 100)
    assert caught.value.metadata["refused_series"] == "100"


def test_never_ok_for_what_readers_ignore() -> None:
    bench = Bench()
    ahead = PRODUCTION.gateway_ahead_ms
    bench.log.broker_ahead_ms = ahead - PRODUCTION.ahead_ms  # The highest limit at which a sample on it still counts.
    assert bench.write([label_set(0)], ts_ms=[NOW_MS + ahead]).samples == 1
    bench.log.broker_ahead_ms -= 1
    with pytest.raises(Unavailable, match="clocks of gateway and broker differ") as caught:
        bench.write([label_set(0)], ts_ms=[NOW_MS + ahead])
    assert caught.value.reason == "clock"
    assert caught.value.retry_after_s is not None


def test_a_lost_ack_is_no_ok_and_sending_again_is_safe() -> None:
    bench = Bench()
    bench.write([label_set(0)])
    bench.log.plan = lambda topic, partition, value: Fault(Unavailable("no answer"), stored=True)
    with pytest.raises(Unavailable):
        bench.write([label_set(0)], values=[7.0])
    bench.log.plan = lambda topic, partition, value: None
    bench.write([label_set(0)], values=[7.0])
    assert list(bench.log.samples().values()) == np.array([7.0]).view(np.int64).tolist()


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (Unavailable("away"), Unavailable, "unavailable"),
        (Overloaded("full", reason="queue_full", retry_after_s=0.5), Overloaded, "queue_full"),
        (WrongTopic("made anew", reason="topic_recreated"), Unavailable, "topic_recreated"),
        (Unavailable("odd", reason="never_heard_of"), Unavailable, "never_heard_of"),
    ],
)
@pytest.mark.parametrize("raised", [True, False])
def test_what_the_log_says_reaches_the_sender_as_retryable(
    error: TsdbError, kind: type[TsdbError], reason: str, raised: bool
) -> None:
    bench = Bench()
    bench.write([label_set(0)])
    bench.log.plan = lambda topic, partition, value: Fault(error, raised=raised)
    counted_as = "other" if reason == "never_heard_of" else reason
    before = sample(REFUSED, reason=counted_as)
    with pytest.raises(kind) as caught:
        bench.write([label_set(0)])
    assert caught.value.reason == reason
    assert sample(REFUSED, reason=counted_as) == before + 1
    assert bench.pipeline.inflight_bytes == 0


def test_one_partition_that_fails_fails_the_request() -> None:
    bench = Bench()
    labels = [label_set(0, instance=instance) for instance in range(20)]
    bench.write(labels)
    bench.log.plan = lambda topic, partition, value: Fault(Unavailable("away")) if partition == 2 else None
    with pytest.raises(Unavailable):
        bench.write(labels)


def test_no_answer_before_the_deadline_is_unavailable() -> None:
    bench = Bench()
    bench.write([label_set(0)])
    bench.log.hold(METRICS)
    with pytest.raises(Unavailable, match="before the deadline") as caught:
        bench.write([label_set(0)], timeout_s=0.2)
    assert caught.value.reason == "deadline"
    assert bench.pipeline.inflight_bytes > 0, "its record still waits in the log's queue"
    bench.log.release()
    assert bench.pipeline.inflight_bytes == 0


def test_the_gateways_own_timeout_bounds_a_patient_sender() -> None:
    bench = Bench(limits=IngestLimits(produce_timeout_s=0.2))
    bench.log.hold(METRICS)
    with pytest.raises(Unavailable, match="before the deadline"):
        bench.write([label_set(0)], timeout_s=3600)


def test_nothing_is_appended_after_the_deadline() -> None:
    bench = Bench()
    bench.write([label_set(0)])
    before = len(bench.log.records)
    with pytest.raises(Unavailable, match="nothing was appended"):
        bench.write([label_set(0)], timeout_s=0)
    assert len(bench.log.records) == before


def test_bytes_in_flight_are_bounded() -> None:
    request_bytes = len(label_set(0)) + 16
    bench = Bench(limits=IngestLimits(request_bytes_max=request_bytes, inflight_bytes_max=request_bytes))
    bench.write([label_set(0)])
    bench.log.hold(METRICS)
    with pytest.raises(Unavailable):
        bench.write([label_set(0)], timeout_s=0)
    with pytest.raises(Unavailable):
        bench.write([label_set(0)], timeout_s=0.2)
    with pytest.raises(Overloaded, match=r"wait for the log .* limit is") as caught:
        bench.write([label_set(0)])
    assert caught.value.reason == "inflight_bytes"
    assert caught.value.retry_after_s
    bench.log.release()
    assert bench.write([label_set(0)]).samples == 1


def test_a_closed_pipeline_refuses_and_lets_what_runs_end() -> None:
    bench = Bench()
    bench.write([label_set(0)])
    bench.log.hold(METRICS)
    with pytest.raises(Unavailable):
        bench.write([label_set(0)], timeout_s=0.2)
    bench.pipeline.close()
    with pytest.raises(Unavailable, match="draining") as caught:
        bench.write([label_set(0)])
    assert caught.value.retry_after_s
    assert not bench.pipeline.wait_idle(0.01)
    bench.log.release()
    assert bench.pipeline.wait_idle(0)


@pytest.mark.parametrize(
    ("changes", "limits", "reason"),
    [
        ({"partitions": 5}, {}, "partitions"),
        ({"time_set": DEMO}, {"produce_timeout_s": 15.1}, "produce_timeout"),
    ],
)
def test_settings_that_contradict_the_log_or_each_other_refuse_the_start(
    changes: dict[str, object], limits: dict[str, float], reason: str
) -> None:
    bench = Bench()
    bench.limits = IngestLimits(**limits)  # type: ignore[arg-type]  # one of its fields
    for name, value in changes.items():
        setattr(bench, name, value)
    with pytest.raises(ConfigMismatch) as caught:
        bench.restart()
    assert caught.value.reason == reason


def test_accepted_samples_are_counted() -> None:
    bench = Bench()
    before = sample("tsdb_ingest_samples_total"), sample("tsdb_ingest_requests_total")
    bench.write([label_set(n) for n in range(10)])
    assert (sample("tsdb_ingest_samples_total"), sample("tsdb_ingest_requests_total")) == (
        before[0] + 10,
        before[1] + 1,
    )


@contextmanager
def without_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def submitted(bench: Bench, samples: int, timeout_s: float) -> tuple[Future[AcceptedWrite], weakref.ref[NDArray[Any]]]:
    """The answer to a request of one series, and whether its values are still in memory."""
    values = np.ones(samples)
    rows = make_rows([label_set(0)], None, np.full(1, NOW_MS), values)
    return bench.pipeline.submit(rows, False, Deadline.after(timeout_s)), weakref.ref(values)


@pytest.mark.parametrize("samples", [1, 2], ids=["accepted", "refused"])
def test_an_answered_request_leaves_no_cycle_that_keeps_its_rows(samples: int) -> None:
    """Requests may be large: their memory must not wait for a garbage collection."""
    bench = Bench()
    bench.write([label_set(0)])
    with without_collections():
        answer, values = submitted(bench, samples, 10.0)
        with contextlib.suppress(InvalidRequest):
            written(answer)
        del answer
        assert values() is None


def test_a_request_past_its_deadline_leaves_no_cycle_once_the_log_has_answered() -> None:
    bench = Bench(manual_timer=True)
    bench.write([label_set(0)])
    bench.log.hold(METRICS)
    with without_collections():
        answer, values = submitted(bench, 1, 1.0)
        bench.clock.advance(1_000)
        bench.timer.fire()
        with contextlib.suppress(Unavailable):
            written(answer)
        del answer
        bench.log.answer(1)
        assert values() is None
