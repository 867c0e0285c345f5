"""Builds a store from its settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from tsdb.config import StandaloneSettings, StoreSettings
from tsdb.config.store import StoreFields
from tsdb.config.trials import ExperimentFields
from tsdb.head.state import HeadLimits
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import SystemClock
from tsdb.model.errors import ConfigMismatch
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.server import GrpcService
from tsdb.ops.health import PartitionHealth
from tsdb.ops.lifecycle import Component
from tsdb.reader.read_call import SelectLimits
from tsdb.roles.log import LogComponent, connected, meta_settings
from tsdb.roles.process import Opened, first_reason
from tsdb.roles.servers import grpc_server, health_setter, read_calls, reader_service
from tsdb.roles.trials.experiment import check_address
from tsdb.store.reads import StoreReads
from tsdb.store.reporter import StoreReporter, partition_health
from tsdb.store.service import ReaderService
from tsdb.store.snapshots.snapshots import SnapshotOptions
from tsdb.store.store import Store, StoreOptions

DRAIN_PART = 3  # Last snapshots may take this part (1/3) of a drain; the other components need the rest.


def open_store(settings: StoreSettings) -> Opened:
    """A store process. Raises as `open_gateway`, and ConfigMismatch (experiment_address)."""
    check_address(settings, settings.grpc_listen)
    with connected(settings) as log:
        store = make_store(settings, log)
        health = Health()
        server = grpc_server(settings, [_reader_service(store, settings)], health)
        reporter = StoreReporter(store, health_setter(health), SystemClock())
        components: list[Component] = [LogComponent(log), store, reporter, server]
        stalled = first_reason(log.stalled, store.stalled)
        return Opened(components, store_partitions(store), stalled, grpc=server)


def make_store(settings: StoreSettings | StandaloneSettings, log: Log) -> Store:
    """A store over a log that the caller closes. Raises ConfigMismatch for unknown partitions or too little memory."""
    partitions = _chosen(settings, log.partitions(METRICS))
    try:
        soft_bytes, hard_bytes = settings.memory_shares(len(partitions))
    except ValueError as error:
        raise ConfigMismatch(str(error), reason="memory_share") from error
    options = StoreOptions(
        time_set=settings.times,
        slices=settings.slices(settings.times),
        hold_ms=settings.hold_ms(settings.times),
        limits=HeadLimits(
            memory_soft_bytes=soft_bytes,
            memory_hard_bytes=hard_bytes,
            ring_samples_max=settings.watch_samples_max,
            exemplars_series_max=settings.exemplars_series_max,
            exemplars_bytes_max=settings.exemplars_bytes_max // len(partitions),
        ),
        workers=settings.worker_count(),
        lag_enter_s=settings.lag_enter_s,
        lag_leave_s=settings.lag_leave_s,
        placement_labels=settings.placement_labels,
        snapshots=_snapshots(settings, log.partitions(METRICS)),
    )
    return Store(log, partitions, options, SystemClock())


def store_reads(store: Store, fields: StoreFields) -> StoreReads:
    """The reads of a store over its heads."""
    limits = SelectLimits(fields.select_series_max, fields.select_samples_max, fields.select_bytes_max)
    max_lag_ms = round(fields.max_lag_s * 1000) or None
    return StoreReads(
        store.topic_id,
        store.partitions,
        store.applied,
        limits,
        store.placement_labels,
        max_lag_ms,
        store.refresh_watermarks,
    )


def store_partitions(store: Store) -> Callable[[], dict[int, PartitionHealth]]:
    """A function that returns the health of a store's partitions. For the probes."""
    return lambda: {status.partition: partition_health(status) for status in store.statuses()}


def _reader_service(store: Store, settings: StoreSettings) -> GrpcService:
    servicer = ReaderService(store_reads(store, settings), read_calls(settings), settings.experiment)
    return reader_service(servicer, "Coverage")


def _snapshots(settings: StoreSettings | StandaloneSettings, partitions: int) -> SnapshotOptions | None:
    if not settings.snapshot_dir:
        return None
    return SnapshotOptions(
        Path(settings.snapshot_dir),
        meta_settings(settings, partitions),
        settings.snapshot_interval_s,
        settings.drain_s / DRAIN_PART,
        settings.experiment if isinstance(settings, ExperimentFields) else "",
    )


def _chosen(fields: StoreFields, count: int) -> Sequence[int]:
    try:
        partitions = fields.chosen_partitions(count)
    except ValueError as error:
        raise ConfigMismatch(str(error), reason="partitions") from error
    if not partitions:
        raise ConfigMismatch(f"shard {fields.shard} has no partition: the log has {count}", reason="partitions")
    return partitions
