"""Builds a gateway from its settings."""

from __future__ import annotations

from ingest.gateway import Gateway
from ingest.limits import IngestLimits, SeriesLimits
from ingest.service import IngestService
from ingest.warm_up import warm_up
from tsdb.config import CommonSettings, GatewaySettings
from tsdb.config.gateway import GatewayFields
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import SystemClock
from tsdb.model.labels import LabelLimits
from tsdb.model.placement import PlacementRule
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.server import GrpcService
from tsdb.ops.lifecycle import Component
from tsdb.roles.log import LogComponent, connected
from tsdb.roles.process import Opened
from tsdb.roles.servers import grpc_server
from tsdb.v1 import ingest_pb2_grpc


class Serving:
    """A component that reports the gateway as serving once all components before it have started."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def start(self) -> None:
        self._health.set("", serving=True)

    def close(self) -> None:
        """No effect: the server's drain changes the health."""

    def join(self, timeout_s: float) -> bool:
        return True

    def abort(self) -> None:
        """No effect: there is nothing to release."""


def open_gateway(settings: GatewaySettings) -> Opened:
    """A gateway process. Raises Unavailable while the log is away, ConfigMismatch when settings differ from `meta`."""
    with connected(settings) as log:
        gateway = make_gateway(settings, settings, log)
        health = Health()
        server = grpc_server(settings, [ingest_service(gateway)], health, writes=settings)
        components: list[Component] = [LogComponent(log), gateway, Serving(health), server]
        return Opened(components, dict, lambda: "", warm_ups=[warm_up])


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
