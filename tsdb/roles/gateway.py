"""Builds a gateway from its settings."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.bucket_memory import BucketMemory
from ingest.gateway import Gateway
from ingest.grpc.service import ingest_service
from ingest.http.protocol import WriteProtocol
from ingest.http.receiver import HttpReceiver, ReceiverLimits
from ingest.influx.lines import LineRules
from ingest.influx.protocol import influx_preparations, influx_protocols
from ingest.limits import IngestLimits, Rate, RateLimits, SeriesLimits
from ingest.otlp.decode import OtlpDecoder, OtlpLimits
from ingest.otlp.mapping.names import OtlpRules, TranslationStrategy
from ingest.otlp.receivers import MetricsService, metrics_service, otlp_http
from ingest.otlp.wire.tables import TableLimits
from ingest.remote_write.protocol import remote_write
from tsdb.config import GatewaySettings, RulerSettings, StandaloneSettings
from tsdb.config.gateway import GatewayFields
from tsdb.log.interface import METRICS, Log
from tsdb.log.metadata import MetadataWriter
from tsdb.model.clock import SystemClock
from tsdb.model.labels import LabelLimits
from tsdb.model.placement import PlacementRule
from tsdb.ops.byte_budget import RequestBytes
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.server import GrpcService
from tsdb.ops.home_core import HomeCore
from tsdb.ops.lifecycle import Component
from tsdb.roles.log import LogComponent, connected
from tsdb.roles.process import Opened
from tsdb.roles.servers import grpc_server, request_bytes

# OTLP: labels of one series give attributes of one point, as some attributes become one label. The share bounds the
# bytes of label sets that are checked first, by the limit of a request.
ATTRIBUTES_A_LABEL, LABEL_BYTES_SHARE = 2, 4
# The rest of http_request_timeout_s is for the answer's way to its caller.
ANSWER_SHARE = 0.9

# Names of the threads of gRPC calls and their server, of HTTP and its bodies, of the log's writer and its answers.
WRITE_THREADS = r"grpc_\d+|Thread-\d+ \(_serve\)|ops-http|http-write-\d+|log-writer|log-answers|append-timer"


class Serving(Component):
    """A component that reports the gateway as serving once all components before it have started."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def start(self) -> None:
        self._health.set("", serving=True)

    def join(self, timeout_s: float) -> bool:
        return True


def open_gateway(settings: GatewaySettings) -> Opened:
    """A gateway process. Raises Unavailable while the log does not answer, ConfigMismatch when settings differ from
    `meta`."""
    with connected(settings) as log:
        gateway = make_gateway(settings, log)
        health = Health()
        held = request_bytes(settings)
        metadata = MetadataWriter(log, SystemClock())
        writes = write_receivers(settings, gateway, metadata, held)
        server = grpc_server(settings, writes.services, health, writes=settings, held=held)
        components: list[Component] = [LogComponent(log), gateway, metadata, Serving(health), server, writes.http]
        components += home_core(settings, interrupts=False)
        return Opened(components, dict, log.stalled, gateway.problem, writes.http, server)


def home_core(fields: GatewayFields, *more: str, interrupts: bool) -> list[Component]:
    """Keeps the threads of writes on one core, if it is set so. more: names of others, as WRITE_THREADS. interrupts:
    see HomeCore. A process that answers queries needs it, because a write must not wait for a long query.
    """
    return [HomeCore("|".join([WRITE_THREADS, *more]), interrupts=interrupts)] if fields.writes_on_one_core else []


def make_gateway(settings: GatewaySettings | RulerSettings | StandaloneSettings, log: Log) -> Gateway:
    """A gateway over a log that the caller closes."""
    limits = ingest_limits(settings)
    rule = PlacementRule(settings.placement_labels)
    return Gateway(log, rule, log.partitions(METRICS), settings.times, limits, SystemClock())


def ingest_limits(fields: GatewayFields) -> IngestLimits:
    return IngestLimits(
        labels=LabelLimits(
            fields.labels_max, fields.label_name_bytes_max, fields.label_value_bytes_max, fields.labels_bytes_max
        ),
        request_bytes_max=fields.request_bytes_max,
        series_max=fields.request_series_max,
        samples_max=fields.samples_max,
        exemplars_max=fields.request_exemplars_max,
        inflight_bytes_max=fields.inflight_bytes_max,
        series_table_bytes=fields.series_table_bytes,
        series=SeriesLimits(fields.source_series_max, fields.gateway_series_max),
        source_rates=RateLimits(
            Rate(fields.source_requests_per_s, fields.source_samples_per_s), burst_s=fields.rate_burst_s
        ),
        token_rates=RateLimits(
            Rate(fields.token_requests_per_s, fields.token_samples_per_s), burst_s=fields.rate_burst_s
        ),
        limits_file=fields.limits_file,
        produce_timeout_s=fields.produce_timeout_s,
    )


@dataclass(frozen=True, slots=True)
class WriteReceivers:
    """The ways into a gateway: services of the gRPC server, and the write routes of the HTTP server."""

    services: list[GrpcService]
    http: HttpReceiver


def write_receivers(
    settings: GatewaySettings | StandaloneSettings, gateway: Gateway, metadata: MetadataWriter, held: RequestBytes
) -> WriteReceivers:
    """All protocols of writes over one gateway. held: the budget for the memory of all requests."""
    decoder = otlp_decoder(settings, gateway.buckets)
    otlp = MetricsService(decoder, gateway.pipeline.submit, metadata.write, held, gateway.tokens)
    limits = ReceiverLimits(
        bytes_max=settings.request_bytes_max,
        timeout_s=settings.http_request_timeout_s * ANSWER_SHARE,
        threads=settings.http_write_threads,
    )
    protocols = write_protocols(settings, decoder, gateway.buckets)
    receiver = HttpReceiver(protocols, gateway.pipeline.submit, metadata.write, held, limits, gateway.tokens)
    ingest = ingest_service(gateway.pipeline, gateway.tokens, settings.native_histograms)
    return WriteReceivers([ingest, metrics_service(otlp)], receiver)


def write_protocols(
    fields: GatewayFields, decoder: OtlpDecoder, buckets: BucketMemory | None = None
) -> list[WriteProtocol]:
    """The protocols of writes over HTTP. decoder: the decoder of OTLP, which the gRPC service may share. buckets: those
    of a gateway."""
    limits = ingest_limits(fields)
    lines = LineRules(
        limits.labels,
        fields.influx_names,
        fields.influx_value_field,
        fields.influx_database_label,
        limits.samples_max,
        limits.request_bytes_max,
    )
    return [
        remote_write(limits, native_histograms=fields.native_histograms, buckets=buckets),
        *influx_protocols(lines, SystemClock()),
        *influx_preparations(),
        otlp_http(decoder),
    ]


def otlp_decoder(fields: GatewayFields, buckets: BucketMemory | None = None) -> OtlpDecoder:
    """The decoder of OTLP. buckets: those of a gateway."""
    rules = OtlpRules(
        translation_strategy=TranslationStrategy(fields.otlp_translation_strategy),
        promote_resource_attributes=frozenset(fields.otlp_promote_resource_attributes),
        promote_all_resource_attributes=fields.otlp_promote_all_resource_attributes,
        ignore_resource_attributes=frozenset(fields.otlp_ignore_resource_attributes),
        keep_identifying_resource_attributes=fields.otlp_keep_identifying_resource_attributes,
        promote_scope_metadata=fields.otlp_promote_scope_metadata,
        native_histograms=fields.native_histograms,
        delta=fields.otlp_delta,
    )
    tables = TableLimits(
        rows_max=fields.request_series_max,
        odd_max=fields.request_series_max,
        attributes_max=ATTRIBUTES_A_LABEL * fields.labels_max,
        exemplars_max=fields.request_exemplars_max,
    )
    return OtlpDecoder(rules, OtlpLimits(tables, LABEL_BYTES_SHARE * fields.request_bytes_max), buckets)
