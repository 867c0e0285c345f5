"""Builds a gateway from its settings."""

from __future__ import annotations

from ingest.gateway import Gateway
from ingest.limits import IngestLimits
from ingest.series.limits import SeriesLimits
from ingest.service import IngestService
from tsdb.config import CommonSettings, GatewaySettings
from tsdb.config.gateway import GatewayFields
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import SystemClock
from tsdb.model.labels import LabelLimits
from tsdb.model.placement import PlacementRule
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.server import GrpcService
from tsdb.roles.log import LogComponent, connected
from tsdb.roles.process import Opened
from tsdb.roles.servers import grpc_server
from tsdb.v1 import ingest_pb2_grpc


def open_gateway(settings: GatewaySettings) -> Opened:
    """A gateway process. Raises Unavailable while the log is away, ConfigMismatch when settings differ from `meta`."""
    with connected(settings) as log:
        gateway = make_gateway(settings, settings, log)
        health = Health()
        health.set("", serving=True)
        server = grpc_server(settings, [ingest_service(gateway)], health, writes=settings)
        return Opened([LogComponent(log), gateway, server], dict, lambda: "")


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


def ingest_service(gateway: Gateway) -> GrpcService:
    return GrpcService("tsdb.v1.Ingest", IngestService(gateway.pipeline), ingest_pb2_grpc.add_IngestServicer_to_server)
