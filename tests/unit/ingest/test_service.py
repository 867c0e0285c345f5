"""The Ingest service over a real gRPC server: tokens for what is stored, typed errors for whatever else comes in."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.grpc.write_request import WriteRequest, claimed_samples, decode_write_request
from ingest.limits import IngestLimits
from support.counters import sample
from support.data.exemplars import plain
from support.data.fuzz import payloads, send
from support.examples import examples
from support.fakes.fake_log import Fault
from support.fakes.grpc_echo import call_raw
from support.servers.gateway_server import WRITE, call, gateway_server, ingest_stub, write_request
from support.servers.gateways import NOW_MS, Bench, label_set
from tsdb.log.interface import METRICS
from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError, Unavailable
from tsdb.model.labels import series_id
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.v1 import ingest_pb2

FUZZ_SEED = 11

# Fields in any order and number; 13 and 500 are unknown.
FIELDS = st.lists(
    st.one_of(
        st.builds(lambda labels: ingest_pb2.WriteRequest(labels=[labels]), st.binary(max_size=200)),
        st.builds(lambda times: ingest_pb2.WriteRequest(ts_ms=times), st.integers(0, 3).map(lambda n: b"12345678" * n)),
        st.builds(lambda some: ingest_pb2.WriteRequest(values=some), st.integers(0, 3).map(lambda n: b"87654321" * n)),
        st.builds(lambda partial: ingest_pb2.WriteRequest(partial=partial), st.booleans()),
    ).map(lambda message: message.SerializeToString())
    | st.sampled_from([b"\x68\x85\x01", b"\x6a\x03abc", b"\x69" + bytes(8), b"\xa5\x1f" + bytes(4), b"\x28\x80\x00"]),
    max_size=12,
).map(b"".join)


@dataclass
class Served:
    """A bench, its server's port and a stub."""

    bench: Bench
    port: int
    stub: Any


@pytest.fixture
def served() -> Iterator[Served]:
    bench = Bench(limits=IngestLimits(series_max=1000))
    with gateway_server(bench.pipeline) as server, ingest_stub(server.port) as stub:
        yield Served(bench, server.port, stub)


def test_an_ok_names_the_records_that_hold_the_samples(served: Served) -> None:
    labels = [label_set(number, instance=number) for number in range(10)]
    answer = call(served.stub, write_request(labels, [NOW_MS] * 10))
    assert (answer.samples, answer.refused_samples, answer.refused_series, len(answer.offenders)) == (10, 0, 0, 0)
    assert [(token.topic_id, token.partition, token.record_offset) for token in answer.tokens] == [
        ("id-of-metrics", record.partition, record.offset) for record in served.bench.log.of(METRICS)
    ]


def test_counts_say_which_samples_are_whose(served: Served) -> None:
    counts = np.array([3, 1], "<u4").tobytes()
    call(served.stub, write_request([label_set(0), label_set(1)], [NOW_MS - i for i in range(4)], sample_counts=counts))
    ids = served.bench.log.decoded().series_id.tolist()
    assert (ids.count(series_id(label_set(0))), ids.count(series_id(label_set(1)))) == (3, 1)


def test_a_call_without_a_deadline_is_answered(served: Served) -> None:
    assert call(served.stub, write_request([label_set(0)], [NOW_MS]), timeout_s=None).samples == 1


def test_partial_lists_the_refused(served: Served) -> None:
    answer = call(served.stub, write_request([label_set(0), b"bad"], [NOW_MS, NOW_MS], partial=True))
    assert (answer.samples, answer.refused_samples, answer.refused_series) == (1, 1, 1)
    assert [(o.series_index, o.reason) for o in answer.offenders] == [(1, "labels_malformed")]
    assert "no __name__" in answer.offenders[0].message or "without a value" in answer.offenders[0].message


def test_many_long_offenders_still_arrive_as_details(served: Served) -> None:
    labels = [label_set(number, name="\N{GRINNING FACE}" * 400) for number in range(200)]
    with pytest.raises(InvalidRequest) as caught:
        call(served.stub, write_request(labels, [0] * 200))
    assert caught.value.reason == "too_old"
    assert caught.value.metadata["refused_series"] == "200"
    assert sum(key.startswith("offender_") for key in caught.value.metadata) == 9


def exemplar(series: int = 0, labels: bytes = b"trace_id\xffa", ts_ms: int = NOW_MS) -> dict[str, bytes]:
    """The fields of one exemplar."""
    return {
        "exemplar_series": np.array([series], "<u4").tobytes(),
        "exemplar_ts_ms": np.array([ts_ms], "<i8").tobytes(),
        "exemplar_values": np.array([0.5], "<f8").tobytes(),
        "exemplar_label_lengths": np.array([len(labels)], "<u4").tobytes(),
        "exemplar_labels": labels,
    }


def test_exemplars_are_on_the_log_with_labels_in_order(served: Served) -> None:
    request = write_request([label_set(0)], [NOW_MS], **exemplar(labels=b"trace_id\xffa\xffb\xffc"))
    assert call(served.stub, request).exemplars == 1
    found = served.bench.log.decoded().exemplars
    assert found is not None
    assert plain(found.exemplars) == [(series_id(label_set(0)), NOW_MS, 0.5, {"b": "c", "trace_id": "a"})]
    assert found.exemplars.labels.tobytes().startswith(b"b")


@pytest.mark.parametrize(
    ("labels", "reason"),
    [(b"a", "labels_malformed"), (b"a\xff\xfe", "labels_malformed"), (b"a\xff" + b"x" * 128, "labels_too_long")],
)
def test_a_bad_exemplar_is_dropped_and_its_sample_written(served: Served, labels: bytes, reason: str) -> None:
    before = sample("tsdb_ingest_exemplars_dropped_total", reason=reason)
    answer = call(served.stub, write_request([label_set(0)], [NOW_MS], **exemplar(labels=labels)))
    assert (answer.samples, answer.exemplars) == (1, 0)
    assert sample("tsdb_ingest_exemplars_dropped_total", reason=reason) - before == 1


@pytest.mark.parametrize(
    ("change", "reason", "text"),
    [
        ({"labels": []}, "empty_request", "no series"),
        ({"ts_ms": b"1234567"}, "malformed_request", "ts_ms has 7 bytes, which is no whole number of 8-byte values"),
        ({"values": b"123456789"}, "malformed_request", "values has 9 bytes"),
        ({"sample_counts": b"12345"}, "malformed_request", "sample_counts has 5 bytes"),
        ({"ts_ms": b""}, "malformed_request", "0 timestamps"),
        ({"sample_counts": bytes(4)}, "malformed_request", "series_index 0 has no samples"),
        ({"sample_counts": bytes(8)}, "malformed_request", "2 sample counts for 1 series"),
        ({"labels": [b"x"] * 1001}, "too_many_series", "1001 series; limit is 1000"),
        ({"exemplar_series": bytes(3)}, "malformed_request", "exemplar_series has 3 bytes"),
        ({"exemplar_series": bytes(4)}, "malformed_request", "1 exemplars have 0 times, 0 values and 0 label lengths"),
        (exemplar(series=1), "malformed_request", "an exemplar names series_index 1 of 1 series"),
        (exemplar(labels=b"") | {"exemplar_labels": b"a"}, "malformed_request", "have 1 bytes, their lengths say 0"),
    ],
)
def test_misshapen_requests_are_the_senders_fault_and_counted(
    served: Served, change: dict[str, Any], reason: str, text: str
) -> None:
    request = write_request([label_set(0)], [NOW_MS])
    for name, value in change.items():
        request.ClearField(name)  # type: ignore[arg-type]  # one of its fields
        getattr(request, name).extend(value) if name == "labels" else setattr(request, name, value)
    before = sample("tsdb_ingest_refused_requests_total", reason=reason)
    with pytest.raises(InvalidRequest, match=text) as caught:
        call(served.stub, request)
    assert caught.value.reason == reason
    assert sample("tsdb_ingest_refused_requests_total", reason=reason) == before + 1
    assert served.bench.log.records == []


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Unavailable("away", retry_after_s=1.5), Unavailable),
        (Overloaded("full", reason="queue_full", retry_after_s=1.5), Overloaded),
    ],
)
def test_a_log_that_cannot_take_it_is_retryable_with_a_hint(
    served: Served, error: TsdbError, kind: type[Unavailable | Overloaded]
) -> None:
    served.bench.log.plan = lambda topic, partition, value: Fault(error)
    with pytest.raises(kind) as caught:
        call(served.stub, write_request([label_set(0)], [NOW_MS]))
    assert caught.value.retry_after_s == 1.5


def test_the_callers_deadline_ends_the_wait_early_enough_for_a_hint(served: Served) -> None:
    call(served.stub, write_request([label_set(0)], [NOW_MS]))
    served.bench.log.hold(METRICS)
    for timeout_s in (2.0, 8.0, 30.0):  # A pause of this process may use up the share for the refusal.
        with pytest.raises(Unavailable) as caught:
            call(served.stub, write_request([label_set(0)], [NOW_MS]), timeout_s=timeout_s)
        assert caught.value.reason == "deadline"
        if caught.value.retry_after_s is not None:
            break
    assert caught.value.retry_after_s is not None
    served.bench.log.release()
    assert served.bench.pipeline.wait_idle(60)


def test_fuzzed_messages_are_answered_and_store_nothing_wrong(served: Served) -> None:
    rng = random.Random(FUZZ_SEED)
    good = write_request([label_set(n) for n in range(3)], [NOW_MS] * 3).SerializeToString()
    refused: list[TsdbError] = []
    with grpc.insecure_channel(f"127.0.0.1:{served.port}") as channel:
        for _ in range(300):
            data = bytearray(good)
            for _ in range(rng.randrange(1, 6)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            fuzzed = bytes(data[: rng.randrange(1, len(data) + 1)]) if rng.random() < 0.5 else bytes(data)
            try:
                call_raw(channel, WRITE, fuzzed)
            except grpc.RpcError as error:
                refused.append(from_rpc_error(error))
    assert refused
    assert [error for error in refused if not isinstance(error, InvalidRequest)] == [], f"seed {FUZZ_SEED}"
    served.bench.log.decoded()
    announced = {announcement.series_id for announcement in served.bench.log.announcements()}
    assert set(served.bench.log.decoded().series_id.tolist()) <= announced
    assert call(served.stub, write_request([label_set(0)], [NOW_MS])).samples == 1


def test_bytes_that_are_no_grpc_leave_the_port_serving(served: Served) -> None:
    for payload in payloads(FUZZ_SEED, 3):
        send(served.port, payload)
    assert call(served.stub, write_request([label_set(0)], [NOW_MS])).samples == 1


def read(data: bytes) -> WriteRequest | InvalidRequest:
    try:
        return decode_write_request(data)
    except InvalidRequest as error:
        return error


def check(data: bytes) -> None:
    try:
        expected = ingest_pb2.WriteRequest.FromString(data)
    except DecodeError:
        with pytest.raises(InvalidRequest, match="not a valid message"):
            decode_write_request(data)
        return
    got = read(data)
    if isinstance(got, InvalidRequest):
        # Groups (wire types 3 and 4) are refused, and arrays that are not whole or do not fit.
        arrays = (expected.sample_counts, expected.exemplar_series, expected.exemplar_ts_ms, expected.exemplar_values)
        more = (*arrays, expected.exemplar_label_lengths, expected.exemplar_labels, expected.start_ms)
        fits = not expected.HasField("histograms") and not any(more)
        whole = fits and not (len(expected.ts_ms) % 8 or len(expected.values) % 8)
        assert not whole or "wire type" in got.message
        return
    assert [got.rows.labels_of(row) for row in range(len(got.rows))] == list(expected.labels)
    assert (got.rows.ts_ms.tobytes(), got.rows.values.tobytes()) == (expected.ts_ms, expected.values)
    assert got.partial == expected.partial
    assert claimed_samples(data) == len(expected.ts_ms) // 8
    counts = np.frombuffer(expected.sample_counts, "<u4") if expected.sample_counts else np.ones(len(got.rows))
    assert np.diff(got.rows.starts).tolist() == counts.tolist()


@settings(max_examples=examples(200), deadline=None)
@given(FIELDS)
@example(b"")
def test_any_fields_are_read_as_the_generated_class_does(data: bytes) -> None:
    check(data)


@settings(max_examples=examples(400), deadline=None)
@given(
    st.one_of(
        st.binary(max_size=30),
        st.tuples(FIELDS, st.integers(0, 40), st.binary(max_size=3)).map(
            lambda cut: cut[0][: cut[1]] + cut[2] + cut[0][cut[1] + len(cut[2]) :]
        ),
    )
)
@example(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f")
@example(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")
@example(b"\x0a" + b"\xff" * 11)
@example(b"\x00\x01")
@example(b"\x0a\x81\x80\x80\x80\x80\x00a")
@example(b"\xc0\x00\x00\xa1\x80\x80\x80\x10" + bytes(8))
@example(b"\x1a\x09")
def test_damaged_bytes_are_refused_or_read_alike(data: bytes) -> None:
    check(data)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\x0a\x05abc", r"it ends within a field; the field begins at byte 0 of 5"),
        (b"\x0a\x01a" + b"\x80" * 11, "a number has too many bytes; the field begins at byte 3 of 14"),
        (b"\x0a\x01a\x0b", "no field has this number and wire type; the field begins at byte 3"),
        (b"\x0a\x01a\x12\x08" + bytes(8), "2 sample counts for 1 series"),
        (b"\x0a\x01a\x12\x04" + bytes(4), "series_index 0 has no samples"),
        (b"\x0a\x01a\x1a\x07" + bytes(7), "ts_ms has 7 bytes"),
    ],
)
def test_a_malformed_message_is_refused_with_its_place(data: bytes, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text) as caught:
        decode_write_request(data)
    assert caught.value.reason == "malformed_request"
