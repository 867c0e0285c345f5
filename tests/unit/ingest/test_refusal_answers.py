"""Each refusal in each protocol: a sender repeats what waiting mends, and nothing else.

A Prometheus repeats one batch after 429 and 503, and sends nothing else of its shard meanwhile. So a refusal that the
same request would meet again is 400 or 413, with the good part stored.
"""

from __future__ import annotations

import contextlib
import http.client
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from grpc_status import rpc_status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub

from ingest.grpc.service import ingest_service
from ingest.http.receiver import HttpReceiver, ReceiverLimits
from ingest.influx.lines import LineRules
from ingest.influx.protocol import influx_protocols
from ingest.limits import IngestLimits, Rate, RateLimits, SeriesLimits
from ingest.otlp.decode import OtlpDecoder
from ingest.otlp.receivers import PATHS, MetricsService, metrics_service, otlp_http
from ingest.quota.token_quota import TokenQuota
from ingest.remote_write.protocol import PATH, remote_write
from support.data.otlp_requests import attributes, export_request, gauge, number_point
from support.fakes.fake_log import Fault
from support.senders.remote_write import request_1, request_2, snappy
from support.servers.gateway_server import write_request
from support.servers.gateways import NOW_MS, Bench
from tsdb.log.interface import METRICS
from tsdb.model.errors import Overloaded, Unavailable
from tsdb.model.labels import LabelLimits, canonical_labels, parse_labels
from tsdb.ops.byte_budget import RequestBytes
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.server import build_server
from tsdb.ops.health import Liveness, Readiness
from tsdb.ops.http.server import serve_ops
from tsdb.v1 import ingest_pb2_grpc

V1 = "application/x-protobuf"
V2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
TOKEN = "Bearer a"


@dataclass(frozen=True)
class Sample:
    """A series with one sample. instance: the source."""

    name: str = "m"
    instance: str = "i"
    ts_ms: int = NOW_MS
    more: tuple[tuple[str, str], ...] = ()

    @property
    def labels(self) -> dict[str, str]:
        return {"__name__": f"{self.name}_v", "job": "j", "instance": self.instance, **dict(self.more)}


@dataclass
class Reply:
    """code: HTTP status or gRPC code. wait_s: time after which the sender repeats the request. text: the text of the
    error.
    """

    code: int | str
    wait_s: float | None
    text: str


@dataclass
class Served:
    """A gateway with all its protocols."""

    bench: Bench
    http: int
    channel: grpc.Channel
    notes: dict[str, int] = field(default_factory=dict)

    def post(self, path: str, body: bytes, headers: dict[str, str]) -> Reply:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.http, timeout=60)) as connection:
            connection.request("POST", path, body, {"authorization": TOKEN, **headers})
            got = connection.getresponse()
            wait = got.getheader("retry-after")
            return Reply(got.status, None if wait is None else float(wait), got.read().decode(errors="replace"))

    def call(self, method: Callable[..., Any], request: Any) -> Reply:
        try:
            answer = method(request, timeout=60, metadata=(("authorization", TOKEN),))
        except grpc.RpcError as error:
            call: Any = error
            status, retry = rpc_status.from_call(call), RetryInfo()
            waits = [one for one in status.details if one.Is(RetryInfo.DESCRIPTOR) and one.Unpack(retry)]
            wait_s = retry.retry_delay.ToNanoseconds() / 1e9 if waits else None
            return Reply(call.code().name, wait_s, call.details())
        if isinstance(answer, ExportMetricsServiceResponse):
            return Reply("OK", None, answer.partial_success.error_message)
        return Reply("OK", answer.retry_after_ms / 1000 or None, " ".join(one.message for one in answer.offenders))

    def stored(self) -> int:
        """Samples on the log."""
        return len(self.bench.log.samples()) if self.bench.log.of(METRICS) else 0


@contextlib.contextmanager
def served(limits: IngestLimits, held: int = 64 << 20) -> Iterator[Served]:
    bench = Bench(limits=limits)
    tokens = TokenQuota(bench.pipeline.limits_now.token_rates, bench.clock)
    memory, decoder = RequestBytes(held), OtlpDecoder()
    rules = LineRules(limits.labels, samples_max=limits.samples_max)
    protocols = [remote_write(limits), *influx_protocols(rules, bench.clock), otlp_http(decoder)]
    receiver = HttpReceiver(protocols, bench.pipeline.submit, lambda _: None, memory, ReceiverLimits(), tokens)
    receiver.start()
    otlp = MetricsService(decoder, bench.pipeline.submit, lambda _: None, memory, tokens)
    services = [ingest_service(bench.pipeline, tokens), metrics_service(otlp)]
    with (
        serve_ops("127.0.0.1", 0, Readiness, Liveness, bodies=receiver) as server,
        build_server(services, host="127.0.0.1", port=0, health=Health()) as calls,
        grpc.insecure_channel(f"127.0.0.1:{calls.port}") as channel,
    ):
        yield Served(bench, server.port, channel)
    receiver.close()
    assert receiver.join(60.0)


def by_remote_write(at: Served, samples: list[Sample]) -> Reply:
    message = request_1([(one.labels, [(one.ts_ms, 1.0)]) for one in samples])
    return at.post(PATH, snappy(message), {"content-type": V1, "content-encoding": "snappy"})


def by_remote_write_2(at: Served, samples: list[Sample]) -> Reply:
    message = request_2([(one.labels, [(one.ts_ms, 1.0)]) for one in samples])
    return at.post(PATH, snappy(message), {"content-type": V2, "content-encoding": "snappy"})


def _lines(samples: list[Sample]) -> bytes:
    def line(one: Sample) -> str:
        tags = [("job", "j"), ("instance", one.instance), *one.more]
        return f"{one.name},{','.join(map('='.join, tags))} v=1 {one.ts_ms}"

    return "\n".join(map(line, samples)).encode()


def by_influx_1(at: Served, samples: list[Sample]) -> Reply:
    return at.post("/write?precision=ms", _lines(samples), {})


def by_influx_2(at: Served, samples: list[Sample]) -> Reply:
    return at.post("/api/v2/write?precision=ms", _lines(samples), {})


def _export(samples: list[Sample]) -> Any:
    request = export_request()
    for one in samples:
        point = number_point(1.0, one.ts_ms)
        point.attributes.extend(attributes(dict(one.more)))
        source = {"service__name": "j", "service__instance__id": one.instance}
        request.MergeFrom(export_request(gauge(point, name=f"{one.name}_v"), **source))
    return request


def by_otlp(at: Served, samples: list[Sample]) -> Reply:
    return at.post(PATHS[0], _export(samples).SerializeToString(), {"content-type": V1})


def by_otlp_grpc(at: Served, samples: list[Sample]) -> Reply:
    stub: Any = MetricsServiceStub(at.channel)  # type: ignore[no-untyped-call]
    return at.call(stub.Export, _export(samples))


def by_write(at: Served, samples: list[Sample], *, partial: bool = False) -> Reply:
    stub: Any = ingest_pb2_grpc.IngestStub(at.channel)
    labels, times = [canonical_labels(one.labels) for one in samples], [one.ts_ms for one in samples]
    return at.call(stub.Write, write_request(labels, times, partial=partial))


Send = Callable[[Served, list[Sample]], Reply]
SENDS: dict[str, Send] = {
    "remote write 1.0": by_remote_write,
    "remote write 2.0": by_remote_write_2,
    "Influx, version 1": by_influx_1,
    "Influx, version 2": by_influx_2,
    "OTLP over HTTP": by_otlp,
    "OTLP over gRPC": by_otlp_grpc,
    "Ingest.Write": by_write,
}
# The good part is written; Ingest.Write does it on request.
PARTIAL: dict[str, Send] = {**SENDS, "Ingest.Write": partial(by_write, partial=True)}
OVER_GRPC = {"OTLP over gRPC", "Ingest.Write"}


def nothing(_at: Served) -> None:
    """The refusal needs no preparation."""


def quiet_before(at: Served) -> None:
    """The source and the token have used up their rates before the request."""
    assert by_write(at, [Sample(f"before{number}") for number in range(20)]).code == "OK"


def log_refuses(error: Callable[[], Exception]) -> Callable[[Served], None]:
    def prepare(at: Served) -> None:
        at.bench.log.plan = lambda topic, partition, value: Fault(error())  # type: ignore[arg-type]

    return prepare


def draining(at: Served) -> None:
    at.bench.pipeline.close()


def slow_broker(at: Served) -> None:
    """The clock of the broker is 11 minutes behind the clock of the gateway."""
    at.bench.log.broker_ahead_ms = -11 * 60_000


@dataclass(frozen=True)
class Refusal:
    """The refusal of the first of two samples, or with `whole` of the request. again: whether a later retry helps."""

    reason: str
    limits: IngestLimits
    says: str
    bad: Sample = field(default_factory=lambda: Sample("bad"))
    prepare: Callable[[Served], None] = nothing
    again: bool = False
    whole: bool = False
    of_caller: bool = False

    def expected(self, sender: str) -> int | str:
        if sender in OVER_GRPC:
            if not self.again:
                return "INVALID_ARGUMENT"
            return "RESOURCE_EXHAUSTED" if self.of_caller or "full" in self.reason else "UNAVAILABLE"
        if not self.again:
            return 400
        return 429 if self.of_caller and sender != "Influx, version 1" else 503


def rates(holder: str, rate: Rate) -> IngestLimits:
    limits = RateLimits(rate, burst_s=1)
    return IngestLimits(source_rates=limits) if holder == "source" else IngestLimits(token_rates=limits)


ZERO, SOME = Rate(samples_per_s=0), Rate(samples_per_s=2)
REFUSALS = [
    Refusal("source_series_limit", IngestLimits(series=SeriesLimits(0)), "(source_series_max)", whole=True),
    Refusal("gateway_series_limit", IngestLimits(series=SeriesLimits(9, 0)), "(gateway_series_max)", whole=True),
    Refusal("source rate of 0", rates("source", ZERO), "(source_samples_per_s is 0)", whole=True),
    Refusal("token rate of 0", rates("token", ZERO), "(token_samples_per_s is 0)", whole=True),
    Refusal("too_old", IngestLimits(), "limit is 5 days", Sample("bad", ts_ms=5)),
    Refusal("too_far_ahead", IngestLimits(), "limit is 300000 ms", Sample("bad", ts_ms=NOW_MS + 301_000)),
    Refusal(
        "value too long",
        IngestLimits(labels=LabelLimits(value_bytes_max=10)),
        "(label_value_bytes_max)",
        Sample("bad", more=(("a", "b" * 11),)),
    ),
    Refusal(
        "name too long",
        IngestLimits(labels=LabelLimits(name_bytes_max=10)),
        "(label_name_bytes_max)",
        Sample("bad", more=(("a" * 11, "b"),)),
    ),
    Refusal(
        "too many labels",
        IngestLimits(labels=LabelLimits(labels_max=4)),
        "labels_max",
        Sample("bad", more=(("a", "b"), ("c", "d"))),
    ),
    Refusal(
        "source_samples_limit", rates("source", SOME), "(source_samples_per_s)", Sample("bad"), quiet_before,
        again=True, of_caller=True,
    ),
    Refusal(
        "token_samples_limit", rates("token", SOME), "(token_samples_per_s)", Sample("bad"), quiet_before,
        again=True, of_caller=True, whole=True,
    ),
    Refusal(
        "the log is away", IngestLimits(), "no broker answers",
        prepare=log_refuses(lambda: Unavailable("no broker answers")),
        again=True, whole=True,
    ),
    Refusal(
        "queue_full", IngestLimits(), "the queue is full",
        prepare=log_refuses(lambda: Overloaded("the queue is full", reason="queue_full")), again=True, whole=True,
    ),
    Refusal("draining", IngestLimits(), "draining", prepare=draining, again=True, whole=True),
    Refusal("clock", IngestLimits(), "of gateway and broker differ", prepare=slow_broker, again=True, whole=True),
]  # fmt: skip


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.reason)
def test_a_sender_is_sent_away_only_from_what_waiting_does_not_mend(refusal: Refusal) -> None:
    with served(refusal.limits) as at:
        refusal.prepare(at)
        got = {sender: send(at, [refusal.bad]) for sender, send in SENDS.items()}
    assert {sender: one.code for sender, one in got.items()} == {sender: refusal.expected(sender) for sender in SENDS}
    assert {sender: one.wait_s is not None for sender, one in got.items()} == dict.fromkeys(SENDS, refusal.again)
    assert {sender: one.text for sender, one in got.items() if refusal.says not in one.text} == {}


@pytest.mark.parametrize(
    "refusal", [one for one in REFUSALS if not one.whole and not one.again], ids=lambda refusal: refusal.reason
)
def test_the_good_part_of_a_request_is_stored_and_the_bad_one_listed(refusal: Refusal) -> None:
    with served(refusal.limits) as at:
        refusal.prepare(at)
        for number, (sender, send) in enumerate(PARTIAL.items()):
            before = at.stored()
            got = send(at, [refusal.bad, Sample(f"good{number}")])
            assert at.stored() - before >= 1, sender
            assert got.code == (200 if sender == "OTLP over HTTP" else "OK" if sender in OVER_GRPC else 400), got.text
            assert refusal.says in got.text, sender
            assert got.wait_s is None, sender


@pytest.mark.parametrize("sender", PARTIAL)
def test_one_source_over_its_series_costs_no_other_source_a_sample(sender: str) -> None:
    with served(IngestLimits(series=SeriesLimits(2))) as at:
        got = PARTIAL[sender](
            at, [*(Sample(f"m{number}", "over") for number in range(5)), Sample("m", "b"), Sample("m", "c")]
        )
        stored = Counter(dict(parse_labels(one.canonical))["instance"] for one in at.bench.log.announcements())
        assert at.stored() == 4
    assert stored == {"over": 2, "b": 1, "c": 1}
    assert got.wait_s is None
    assert "5 new series beside 0 active ones; limit is 2 (source_series_max)" in got.text


@pytest.mark.parametrize("sender", SENDS)
def test_a_request_over_a_limit_of_size_is_never_repeated(sender: str) -> None:
    with served(IngestLimits(samples_max=3)) as at:
        got = SENDS[sender](at, [Sample(f"m{number}") for number in range(4)])
        assert at.stored() == 0
    assert got.code == ("INVALID_ARGUMENT" if sender in OVER_GRPC else 413)
    assert got.wait_s is None
    assert "samples_max" in got.text
