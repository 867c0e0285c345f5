"""Builds every role in one process from the settings."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from tsdb.config import StandaloneSettings
from tsdb.history.interface import ChunkSink, ClosableReads
from tsdb.log.interface import METRICS, Log
from tsdb.log.meta import ensure_meta
from tsdb.log.metadata import MetadataWriter
from tsdb.log.open import open_log, open_topics
from tsdb.log.topics import create_topics, topic_specs
from tsdb.model.clock import SystemClock
from tsdb.ops.grpc.health import Health
from tsdb.ops.http.bodies import JoinedRoutes
from tsdb.ops.lifecycle import Component
from tsdb.query.chunk_stage import ChunkStageWatch
from tsdb.query.promql.running import RunningQueries
from tsdb.query.seam_watch import SeamWatch
from tsdb.query.sources import Sources
from tsdb.query.stores.local import LocalStore, OneStore
from tsdb.roles.chunker import make_chunker
from tsdb.roles.data_folder import DataFolder
from tsdb.roles.gateway import home_core, make_gateway, write_receivers
from tsdb.roles.history_access import (
    HistoryComponent,
    connect_history,
    connect_history_store,
    create_embedded_history,
)
from tsdb.roles.loader import make_loader
from tsdb.roles.log import LogComponent, connected, meta_settings, topic_watch
from tsdb.roles.process import Opened, first_reason
from tsdb.roles.promql import prometheus_api
from tsdb.roles.querier import history_source, querier_service
from tsdb.roles.servers import grpc_server, health_setter, read_calls, request_bytes
from tsdb.roles.store import make_store, store_partitions, store_reads
from tsdb.roles.tables import BUCKETS, ensure_table, keeping_table, reads_table
from tsdb.roles.ui import ui_routes
from tsdb.rules.remote import RuleGroups
from tsdb.store.reporter import StoreReporter

PARTITIONS = 3  # Enough to exercise sharing. An embedded log has a single writer anyway.
SQLITE = "sqlite:"
PAST_THREADS = "chunker.*|loader.*"  # They take the GIL for each record that the writes bring.


def open_standalone(settings: StandaloneSettings) -> Opened:
    """Every role in one process, over the embedded log and history unless others are given.

    Without a history there are no chunks either: reads of times before those in memory are refused.
    """
    with ExitStack() as undo:  # For a failed opening, which is retried or ends the process.
        folder = DataFolder(settings.data_dir)
        undo.callback(folder.abort)
        if settings.log.startswith(SQLITE):
            _create_embedded_log(settings)
        with connected(settings) as log:
            opened = _open_roles(settings, folder, log)
        undo.pop_all()
    return opened


def _open_roles(settings: StandaloneSettings, folder: DataFolder, log: Log) -> Opened:
    history, sink = _history(settings, log)
    gateway = make_gateway(settings, log)
    store = make_store(settings, log)
    health = Health()
    calls, running = read_calls(settings), RunningQueries()
    local = OneStore(LocalStore(store_reads(store, settings), SystemClock(), calls))
    read_past = history_source(history, settings, log)
    watch = ChunkStageWatch(log, settings.times, SystemClock())
    sources = Sources(
        local, store.topic_id, tuple(store.partitions), read_past, watch.state, "", settings.log, settings.history
    )
    held = request_bytes(settings)
    metadata = MetadataWriter(log, SystemClock())
    writes = write_receivers(settings, gateway, metadata, held)
    services = [*writes.services, querier_service(sources, settings, calls, settings, running)]
    server = grpc_server(settings, services, health, writes=settings, held=held)
    ruler: list[Component] = []
    groups: Callable[[], RuleGroups] = RuleGroups
    if settings.rules:
        # Imported here: most processes have no rules.
        from tsdb.roles.ruler import contain_applied, make_ruler, rule_groups
        from tsdb.rules.shares import AllShares

        made = make_ruler(settings, log, gateway, sources, calls, contain_applied(store), AllShares())
        ruler, groups = [*made.notifiers, made], rule_groups(made)
    api = prometheus_api(settings, sources, calls, running, log, held, rule_groups=groups)
    pages = ui_routes(settings, "standalone", sources, api, held)
    reporter = StoreReporter(store, health_setter(health), SystemClock())
    past: list[Component] = []
    stalls = [log.stalled, store.stalled]
    if history is not None and read_past is not None:
        past = [HistoryComponent(history), watch, SeamWatch(sources, read_past)]
        if sink is not None:
            loader = make_loader(settings, log, sink)
            past.append(loader)
            stalls.append(loader.stalled)
        chunker = make_chunker(settings, log)
        past.append(chunker)
        stalls.append(chunker.stalled)
        shared = meta_settings(settings, log.partitions(METRICS))
        past += keeping_table(settings, log, shared, create_buckets=BUCKETS).components
    # Closed from last to first: the last samples are still applied and, as far as possible, chunked and loaded.
    serving: list[Component] = [
        gateway,
        store,
        reporter,
        metadata,
        server,
        writes.http,
        api,
        topic_watch(settings, log),
        *ruler,
        *home_core(settings, PAST_THREADS, interrupts=True),
    ]
    components: list[Component] = [folder, LogComponent(log), *past, *serving]
    return Opened(
        components,
        store_partitions(store),
        first_reason(*stalls),
        gateway.problem,
        bodies=JoinedRoutes((writes.http, api, pages)),
        grpc=server,
    )


def _create_embedded_log(settings: StandaloneSettings) -> None:
    """Create the topics of an embedded log, which has no operator to do so."""
    with open_topics(settings.log, prefix=settings.log_prefix) as admin:
        state = admin.describe(METRICS)
        partitions = state.partitions if state else PARTITIONS
        create_topics(admin, topic_specs(partitions, replication=1))
    with open_log(settings.log, prefix=settings.log_prefix) as log:
        ensure_meta(log, meta_settings(settings, partitions))


def _history(settings: StandaloneSettings, log: Log) -> tuple[ClosableReads | None, ChunkSink | None]:
    """History to read, and the same for a loader; None where a table is kept instead."""
    if not settings.history:
        return None, None
    shared = meta_settings(settings, log.partitions(METRICS))
    if reads_table(settings.history):
        ensure_table(settings, shared)
        return connect_history(settings, shared), None
    if settings.history.startswith(SQLITE):
        create_embedded_history(settings, shared)
    store = connect_history_store(settings, shared)
    return store, store
