"""Builds a querier from its settings: the pool of stores, history, and the Reader service over both."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass

from tsdb.client.channel import ClientTls, call_metadata, open_channel
from tsdb.config import QuerierSettings, RulerSettings, WorkerSettings
from tsdb.config.promql import PromqlFields
from tsdb.config.querier import QuerierFields
from tsdb.config.select import SelectFields
from tsdb.config.types import host_port
from tsdb.history.interface import HistoryReads, IndexVersions
from tsdb.log.downsampled import read_downsampled
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import SystemClock
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.server import GrpcService
from tsdb.ops.http.bodies import JoinedRoutes
from tsdb.ops.lifecycle import Component
from tsdb.query.chunk_stage import ChunkStageWatch
from tsdb.query.history.downsampled import Resolutions
from tsdb.query.history.index import HistoryIndex
from tsdb.query.history.index_generation import IndexGeneration
from tsdb.query.promql.running import RunningQueries
from tsdb.query.reporter import StoresReporter, partitions_health
from tsdb.query.seam_watch import SeamWatch
from tsdb.query.service import QuerierService
from tsdb.query.shadow.seen import AnswerObserver
from tsdb.query.sources import HistorySource, Sources
from tsdb.query.stores.pool import CONNECT_S, Open, StoreAddress, StorePool
from tsdb.query.stores.remote import RemoteStore
from tsdb.reader.read_call import ReadCalls, SelectLimits
from tsdb.roles.caller_token import caller_token
from tsdb.roles.history_access import HistoryComponent, connect_history
from tsdb.roles.log import LogComponent, connected, meta_settings, topic_watch
from tsdb.roles.process import Opened
from tsdb.roles.promql import prometheus_api, query_options
from tsdb.roles.servers import grpc_server, health_setter, read_calls, reader_service
from tsdb.roles.trials.experiment import check_address
from tsdb.roles.trials.shadow import make_shadow
from tsdb.roles.ui import ui_routes
from tsdb.rules.remote import RemoteRulers, RuleGroups, RulerAccess, ask_over_http


def open_querier(settings: QuerierSettings) -> Opened:
    """A querier process. Raises Unavailable while log or history does not answer, ConfigMismatch when settings differ,
    or (experiment_address) for an experiment at the address of production."""
    # The log has the shared settings and the number of partitions. Without it a missing store would stay unnoticed.
    check_address(settings, settings.grpc_listen)
    with connected(settings) as log:
        return _opened(settings, log)


@dataclass(frozen=True, slots=True)
class OpenedSources:
    """Stores and history of a process, and the components behind them, in the order of their start."""

    sources: Sources
    components: list[Component]


def open_sources(settings: QuerierSettings | RulerSettings, log: Log, experiment: str = "") -> OpenedSources:
    """The stores and the history of the settings. Raises as `open_querier`."""
    topic_id, partitions = log.topic_id(METRICS), log.partitions(METRICS)
    pool = StorePool(store_addresses(settings), store_opener(settings, experiment), SystemClock())
    shared = meta_settings(settings, partitions)
    history = connect_history(settings, shared) if settings.history else None
    watch = ChunkStageWatch(log, settings.times, SystemClock())
    past = history_source(history, settings, log)
    sources = Sources(pool, topic_id, range(partitions), past, watch.state, experiment, settings.log, settings.history)
    of_history: list[Component] = [] if history is None else [HistoryComponent(history), watch]
    return OpenedSources(sources, [*of_history, pool])


def _opened(settings: QuerierSettings, log: Log) -> Opened:
    read = open_sources(settings, log, settings.experiment)
    sources = read.sources
    topics = topic_watch(settings, log)
    health = Health()
    calls, running = read_calls(settings), RunningQueries()
    shadow = make_shadow(settings, sources.topic_id, settings.grpc_listen, store_addresses(settings))
    server = grpc_server(settings, [querier_service(sources, settings, calls, settings, running, shadow)], health)
    groups = ruler_groups(settings)
    api = prometheus_api(settings, sources, calls, running, log, seen=shadow, rule_groups=groups)
    reporter = StoresReporter(sources, health_setter(health))
    components: list[Component] = [LogComponent(log), *read.components, reporter, calls.drain, server, api, topics]
    if shadow is not None:
        components.insert(1, shadow)
    if sources.history is not None:
        components.append(SeamWatch(sources, sources.history))
    return Opened(
        components,
        lambda: partitions_health(sources),
        log.stalled,
        bodies=JoinedRoutes((api, ui_routes(settings, "querier", sources, api))),
        grpc=server,
    )


def history_source(history: HistoryReads | None, settings: WorkerSettings, log: Log) -> HistorySource | None:
    """The history of a querier. log: has the records of finished imports and of the progress of downsampling."""
    if history is None:
        return None
    if isinstance(history, IndexVersions):
        generation = history.index_version
    else:
        generation = IndexGeneration(log, log.topic_id(METRICS), SystemClock()).now
    resolutions = Resolutions(lambda: read_downsampled(log), SystemClock())
    return HistorySource(history, HistoryIndex(history, generation), settings.times.window_ms, resolutions)


def querier_service(
    sources: Sources,
    fields: SelectFields,
    calls: ReadCalls,
    promql: PromqlFields,
    running: RunningQueries,
    seen: AnswerObserver | None = None,
) -> GrpcService:
    """The Reader service over these sources."""
    limits = SelectLimits(fields.select_series_max, fields.select_samples_max, fields.select_bytes_max)
    servicer = QuerierService(sources, limits, calls, query_options(promql), running, seen)
    # An operator lists and cancels queries when they hold all slots.
    return reader_service(servicer, "Coverage", "Queries", "CancelQuery")


def store_addresses(fields: QuerierFields) -> list[StoreAddress]:
    parsed = map(host_port, fields.stores)
    return [StoreAddress(one.host, one.port) for one in parsed]


def store_opener(fields: QuerierFields, experiment: str = "") -> Open:
    """A function that opens a channel to one store. Raises InvalidRequest (tls, token_malformed) for bad settings.
    experiment: the experiment of the querier.
    """
    tls = _store_tls(fields)
    metadata = call_metadata(
        caller_token(fields.store_token, fields.store_token_file, "store_token_file", "store_token")
    )

    def open_store(name: StoreAddress, address: StoreAddress) -> RemoteStore:
        # The certificate is for the host name, not for the address that it resolved to.
        channel = open_channel(str(address), tls, server_name=name.host, connect_s=CONNECT_S)
        return RemoteStore(str(address), channel, metadata, SystemClock(), experiment)

    return open_store


def ruler_groups(settings: QuerierSettings) -> Callable[[], RuleGroups]:
    """A function that asks all rulers of the settings. Raises ConfigMismatch, InvalidRequest (tls) for bad settings."""
    if not settings.rulers:
        return RuleGroups
    token = caller_token(settings.store_token, settings.store_token_file, "store_token_file", "store_token") or ""
    parsed = map(host_port, settings.rulers)
    names = [StoreAddress(one.host, one.port) for one in parsed]
    return RemoteRulers(names, ask_over_http(RulerAccess(token, _ruler_tls(settings)))).groups


def _ruler_tls(fields: QuerierFields) -> ssl.SSLContext | None:
    tls = _store_tls(fields)
    if tls is None:
        return None
    context = ssl.create_default_context(cafile=tls.ca_file)
    if tls.cert_file is not None:
        context.load_cert_chain(tls.cert_file, tls.key_file)
    return context


def _store_tls(fields: QuerierFields) -> ClientTls | None:
    if not fields.store_tls:
        return None
    return ClientTls(fields.store_tls_ca_file, fields.store_tls_cert_file, fields.store_tls_key_file)
