"""Builds the components of a role from its settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ingest.gateway import Gateway
from ingest.limits import IngestLimits
from ingest.series.limits import SeriesLimits
from ingest.service import IngestService
from tsdb.cli.role_process import Opened
from tsdb.config import CommonSettings, GatewaySettings, StoreSettings
from tsdb.config.chunker import ChunkerFields
from tsdb.config.gateway import GatewayFields
from tsdb.config.loader import LoaderFields
from tsdb.config.select import SelectFields
from tsdb.config.store import StoreFields
from tsdb.head.limits import HeadLimits
from tsdb.log.interface import METRICS, Log
from tsdb.log.meta import check_meta
from tsdb.log.open import open_log, open_topics
from tsdb.log.settings import KafkaSecurity, LogSettings
from tsdb.log.topics import require_topics, topic_specs
from tsdb.model.clock import SystemClock
from tsdb.model.errors import ConfigMismatch
from tsdb.model.labels import LabelLimits
from tsdb.model.meta import MetaSettings
from tsdb.model.placement import PlacementRule
from tsdb.ops.auth import Tokens
from tsdb.ops.descriptors import grpc_connections, http_connections
from tsdb.ops.grpc_health import Health, partition_service
from tsdb.ops.grpc_server import GrpcLimits, GrpcServer, GrpcService, build_server
from tsdb.ops.health import PartitionHealth
from tsdb.ops.http_connections import HttpLimits
from tsdb.ops.tls import ServerTls
from tsdb.reader.answer_bytes import AnswerBytes
from tsdb.reader.limits import SelectLimits
from tsdb.reader.read_call import ReadCalls
from tsdb.store.reporter import StatusReporter, partition_health
from tsdb.store.service import ReaderService
from tsdb.store.store import Store, StoreOptions
from tsdb.v1 import ingest_pb2_grpc, reader_pb2_grpc

READ_BYTES_MAX = 4 << 20  # The largest read request contains 200,000 series ids.
READS_BYTES_MAX = 64 << 20
MESSAGE_SLACK_BYTES = 1 << 20  # gRPC's limit is above our own, so that callers get our refusal.
FIELDS_SLACK = 64
REQUESTS_IN_HAND_MIN = 8  # Requests of the largest size that fit at once, whatever the limits are.


class LogComponent:
    """Closes the log after all components that use it."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def start(self) -> None:
        """No effect: the log is open already."""

    def close(self) -> None:
        """No effect: other components still drain through the log."""

    def join(self, timeout_s: float) -> bool:
        """Close the log, which answers waiting appends."""
        self._log.close()
        return True

    def abort(self) -> None:
        self._log.close()


def open_gateway(settings: GatewaySettings) -> Opened:
    """A gateway process. Raises Unavailable while the log is away, ConfigMismatch when settings differ from `meta`."""
    with connected(settings) as log:
        gateway = make_gateway(settings, settings, log)
        health = Health()
        health.set("", serving=True)
        server = grpc_server(settings, [ingest_service(gateway)], health, writes=settings)
        return Opened([LogComponent(log), gateway, server], dict, lambda: "")


def open_store(settings: StoreSettings) -> Opened:
    """A store process. Raises as `open_gateway`."""
    with connected(settings) as log:
        store = make_store(settings, settings, log)
        health = Health()
        server = grpc_server(settings, [_reader_service(store, settings)], health)
        reporter = StatusReporter(store, health_setter(health), SystemClock())
        return Opened([LogComponent(log), store, reporter, server], store_partitions(store), store.stalled)


@contextmanager
def connected(settings: CommonSettings) -> Iterator[Log]:
    """As `connect`. Closes the log when opening a role over it fails: the opening is retried, or the process ends."""
    log = connect(settings)
    try:
        yield log
    except BaseException:
        log.close()
        raise


def connect(settings: CommonSettings) -> Log:
    """The log, after a check of its topics and of the settings that all processes share."""
    access = log_settings(settings)
    log = open_log(settings.log, prefix=settings.log_prefix, settings=access)
    try:
        with open_topics(settings.log, prefix=settings.log_prefix, settings=access) as admin:
            # The operator chooses the number of replicas; `topics create` has checked it.
            require_topics(
                admin, topic_specs(log.partitions(METRICS), replication=1, retention_ms=settings.times.least_hold_ms)
            )
        check_meta(log, meta_settings(settings, log.partitions(METRICS)))
    except BaseException:
        log.close()
        raise
    return log


def log_settings(settings: CommonSettings) -> LogSettings:
    """This process's settings of the log client."""
    security = KafkaSecurity(
        protocol=settings.kafka_security_protocol,
        sasl_mechanism=settings.kafka_sasl_mechanism,
        sasl_username=settings.kafka_sasl_username,
        sasl_password=settings.kafka_sasl_password.get_secret_value() if settings.kafka_sasl_password else "",
        sasl_password_file=str(settings.kafka_sasl_password_file or ""),
        ssl_ca_location=str(settings.kafka_ssl_ca_file or ""),
        ssl_certificate_location=str(settings.kafka_ssl_certificate_file or ""),
        ssl_key_location=str(settings.kafka_ssl_key_file or ""),
    )
    if isinstance(settings, GatewayFields):
        return LogSettings(
            security=security,
            delivery_timeout_s=settings.produce_timeout_s,
            idempotence=settings.idempotence,
            embedded_claim=True,
        )
    return LogSettings(security=security, embedded_claim=isinstance(settings, ChunkerFields | LoaderFields))


def meta_settings(settings: CommonSettings, partitions: int) -> MetaSettings:
    """The values of this process for the settings that all processes share."""
    return MetaSettings(partitions, placement_labels=settings.placement_labels, time_set=settings.times)


def make_gateway(settings: CommonSettings, fields: GatewayFields, log: Log) -> Gateway:
    """A gateway over a log that the caller closes."""
    limits = IngestLimits(
        labels=LabelLimits(
            fields.labels_max, fields.label_name_bytes_max, fields.label_value_bytes_max, fields.labels_bytes_max
        ),
        request_bytes_max=fields.request_bytes_max,
        series_max=fields.request_series_max,
        samples_max=fields.samples_max,
        inflight_bytes_max=fields.inflight_bytes_max,
        series_cache_max=fields.series_cache_max,
        series_cache_bytes_max=fields.series_cache_bytes_max,
        series=SeriesLimits(fields.source_series_max, fields.gateway_series_max),
        series_limits_file=fields.series_limits_file,
        produce_timeout_s=fields.produce_timeout_s,
    )
    rule = PlacementRule(settings.placement_labels)
    return Gateway(log, rule, log.partitions(METRICS), settings.times, limits, SystemClock())


def make_store(settings: CommonSettings, fields: StoreFields, log: Log) -> Store:
    """A store over a log that the caller closes. Raises ConfigMismatch for unknown partitions or too little memory."""
    partitions = _chosen(fields, log.partitions(METRICS))
    try:
        soft_bytes, hard_bytes = fields.memory_shares(len(partitions))
    except ValueError as error:
        raise ConfigMismatch(str(error), reason="memory_share") from error
    options = StoreOptions(
        time_set=settings.times,
        slices=fields.slices(settings.times),
        hold_ms=fields.hold_ms(settings.times),
        limits=HeadLimits(
            memory_soft_bytes=soft_bytes,
            memory_hard_bytes=hard_bytes,
            ring_samples_max=fields.watch_samples_max,
        ),
        workers=fields.worker_count(),
        lag_enter_s=fields.lag_enter_s,
        lag_leave_s=fields.lag_leave_s,
        placement_labels=settings.placement_labels,
    )
    return Store(log, partitions, options, SystemClock())


def _chosen(fields: StoreFields, count: int) -> Sequence[int]:
    try:
        partitions = fields.chosen_partitions(count)
    except ValueError as error:
        raise ConfigMismatch(str(error), reason="partitions") from error
    if not partitions:
        raise ConfigMismatch(f"shard {fields.shard} has no partition: the log has {count}", reason="partitions")
    return partitions


def ingest_service(gateway: Gateway) -> GrpcService:
    return GrpcService("tsdb.v1.Ingest", IngestService(gateway.pipeline), ingest_pb2_grpc.add_IngestServicer_to_server)


def read_calls(fields: SelectFields) -> ReadCalls:
    """The bounds that all reads of a process share."""
    return ReadCalls(fields.read_timeout_s, AnswerBytes(fields.answers_bytes_max))


def reader_of(store: Store, fields: SelectFields, calls: ReadCalls) -> ReaderService:
    """The Reader service over a store's heads."""
    limits = SelectLimits(fields.select_series_max, fields.select_samples_max, fields.select_bytes_max)
    return ReaderService(store.topic_id, store.partitions, store.applied, limits, calls)


def _reader_service(store: Store, fields: SelectFields) -> GrpcService:
    servicer = reader_of(store, fields, read_calls(fields))
    return GrpcService("tsdb.v1.Reader", servicer, reader_pb2_grpc.add_ReaderServicer_to_server, always=("Coverage",))


def grpc_server(
    settings: CommonSettings, services: Sequence[GrpcService], health: Health, *, writes: GatewayFields | None = None
) -> GrpcServer:
    """A role's gRPC server, bound and not yet started. writes: limits of writes, for a role that accepts them."""
    limits = GrpcLimits(
        running_max=settings.grpc_running_max,
        waiting_max=settings.grpc_waiting_max,
        send_timeout_s=settings.send_timeout_s,
        receive_bytes_max=READ_BYTES_MAX,
        requests_bytes_max=READS_BYTES_MAX,
        connections_max=grpc_connections(settings.grpc_connections_max),
        idle_s=settings.grpc_idle_timeout_s,
    )
    if writes is not None:
        largest = max(READ_BYTES_MAX, writes.request_bytes_max + MESSAGE_SLACK_BYTES)
        limits = replace(
            limits,
            receive_bytes_max=largest,
            requests_bytes_max=max(writes.inflight_bytes_max, REQUESTS_IN_HAND_MIN * largest),
            fields_max=writes.request_series_max + FIELDS_SLACK,
        )
    listen = settings.grpc_listen
    return build_server(
        services,
        host=listen.host,
        port=listen.port,
        health=health,
        tls=server_tls(settings),
        tokens=server_tokens(settings),
        limits=limits,
    )


def http_limits(settings: CommonSettings) -> HttpLimits:
    return HttpLimits(
        connections_max=http_connections(settings.http_connections_max),
        header_timeout_s=settings.http_header_timeout_s,
        idle_timeout_s=settings.http_idle_timeout_s,
        request_timeout_s=settings.http_request_timeout_s,
    )


def server_tls(settings: CommonSettings) -> ServerTls | None:
    """TLS of our servers; None when it is off."""
    if settings.tls_cert_file is None or settings.tls_key_file is None:
        return None
    return ServerTls(settings.tls_cert_file, settings.tls_key_file, settings.tls_client_ca_file)


def server_tokens(settings: CommonSettings) -> Tokens | None:
    """Bearer tokens that callers must show; None when none are set."""
    if settings.token is None and settings.token_file is None:
        return None
    text = settings.token.get_secret_value() if settings.token else ""
    return Tokens(text=text, file=settings.token_file)


def health_setter(health: Health) -> Callable[[int | None, bool], None]:
    """A function that sets gRPC health of a partition, or of the whole server (None). For reporters."""

    def set_health(partition: int | None, serving: bool) -> None:
        health.set("" if partition is None else partition_service(partition), serving=serving)

    return set_health


def store_partitions(store: Store) -> Callable[[], dict[int, PartitionHealth]]:
    """A function that returns the health of a store's partitions. For the probes."""
    return lambda: {status.partition: partition_health(status) for status in store.statuses()}
