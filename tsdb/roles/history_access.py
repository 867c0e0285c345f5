"""Opens history for roles and commands: from settings to a checked connection."""

from __future__ import annotations

from dataclasses import replace

from tsdb.config import HistoryFields
from tsdb.history.interface import ChunkSink, ChunkStore, ClosableReads
from tsdb.history.open import open_history, open_history_admin, open_history_reads, open_history_sink
from tsdb.history.settings import HistorySettings
from tsdb.history.shared_settings import check_history, ensure_history
from tsdb.model.meta import MetaSettings
from tsdb.ops.lifecycle import Component

QUERY_SILENCE_S = 2.0  # A page takes milliseconds; queries get a typed error within 3 s, jobs may wait longer.


class HistoryComponent(Component):
    """Closes a history after all components that use it."""

    def __init__(self, history: ChunkSink | ClosableReads) -> None:
        self._history = history

    def join(self, timeout_s: float) -> bool:
        self._history.close()
        return True

    def abort(self) -> None:
        self._history.close()


def connect_history(settings: HistoryFields, shared: MetaSettings) -> ClosableReads:
    """History for queries, after a check of its tables and of its shared settings.

    Raises ConfigMismatch with every difference, Unavailable while history is away.
    """
    return open_history_reads(_checked(settings, shared), _for_queries(settings))


def connect_history_store(settings: HistoryFields, shared: MetaSettings) -> ChunkStore:
    """Does what connect_history does, for reads and writes."""
    return open_history(_checked(settings, shared), _for_queries(settings))


def connect_history_sink(settings: HistoryFields, shared: MetaSettings) -> ChunkSink:
    """Does what connect_history does, for writes only."""
    return open_history_sink(_checked(settings, shared), settings.history_settings())


def _checked(settings: HistoryFields, shared: MetaSettings) -> str:
    url = settings.required_history()
    with open_history_admin(url, settings.history_settings()) as admin:
        check_history(admin, shared)
    return url


def _for_queries(settings: HistoryFields) -> HistorySettings:
    found = settings.history_settings()
    return replace(found, silence_s=min(QUERY_SILENCE_S, found.read_timeout_s))


def create_embedded_history(settings: HistoryFields, shared: MetaSettings) -> None:
    """Create the tables of an embedded history, which has no operator to do so."""
    with open_history_admin(settings.required_history(), settings.history_settings()) as admin:
        ensure_history(admin, shared)
