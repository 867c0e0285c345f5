"""Builds a loader from its settings."""

from __future__ import annotations

from tsdb.config import LoaderSettings, StandaloneSettings
from tsdb.history.interface import ChunkSink
from tsdb.history.loader.loader import FILES_GROUP, GROUP, Loader, LoaderOptions
from tsdb.history.open import PARQUET, SQLITE
from tsdb.log.interface import METRICS, Log
from tsdb.model.clock import SystemClock
from tsdb.ops.lifecycle import Component
from tsdb.roles.history_access import HistoryComponent, connect_history_sink
from tsdb.roles.log import LogComponent, connected, meta_settings
from tsdb.roles.process import Opened, first_reason
from tsdb.roles.tables import keeping_table, reads_table

LOCAL_CONCURRENCY = 4096


def open_loader(settings: LoaderSettings) -> Opened:
    """A loader process; where the history is a table, its keeper alone.

    Raises Unavailable while log or history does not answer, ConfigMismatch when settings differ."""
    with connected(settings) as log:
        shared = meta_settings(settings, log.partitions(METRICS))
        keeping = keeping_table(settings, log, shared)
        if reads_table(settings.history):
            return Opened([LogComponent(log), *keeping.components], dict, log.stalled, keeping.problem)
        history = connect_history_sink(settings, shared)
        loader = make_loader(settings, log, history)
        components: list[Component] = [LogComponent(log), HistoryComponent(history), loader]
        components += keeping.components
        stalled = first_reason(log.stalled, loader.stalled)
        return Opened(components, loader.health, stalled, loader.problem)


def make_loader(settings: LoaderSettings | StandaloneSettings, log: Log, history: ChunkSink) -> Loader:
    """The loader between a log and a history that the caller closes."""
    files = settings.history.startswith(PARQUET)
    local = files or settings.history.startswith(SQLITE)
    options = LoaderOptions(
        settings.times,
        group_id=group_of(settings),
        # A file acknowledges many rows at once, about once a second. A database in a file does so up to twice a second.
        concurrency=max(settings.load_concurrency, LOCAL_CONCURRENCY) if local else settings.load_concurrency,
        inflight_bytes_max=settings.history_inflight_bytes_max,
        buffer_bytes_max=settings.load_buffer_bytes_max,
        remembered_max=settings.load_series_remembered_max,
        drain_s=settings.drain_s,
        accept_replay=settings.load_accept_replay,
    )
    return Loader(log, history, options, SystemClock())


def group_of(settings: LoaderSettings | StandaloneSettings) -> str:
    """The consumer group of the loaders of this history."""
    return settings.load_group or (FILES_GROUP if settings.history.startswith(PARQUET) else GROUP)
