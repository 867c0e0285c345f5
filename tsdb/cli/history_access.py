"""The way of roles and commands to history: settings to a checked connection."""

from __future__ import annotations

from tsdb.cli.history_settings import history_url
from tsdb.config import CommonSettings
from tsdb.history.interface import ChunkSink, ChunkStore
from tsdb.history.open import open_history, open_history_admin, open_history_sink
from tsdb.history.shared_settings import check_history, ensure_history
from tsdb.model.meta import MetaSettings


def connect_history(settings: CommonSettings, shared: MetaSettings) -> ChunkStore:
    """History, once its tables are as they must be and it was made for `shared`.

    Raises ConfigMismatch with every difference, Unavailable while it is away.
    """
    url = history_url(settings)
    with open_history_admin(url, settings.history_settings()) as admin:
        check_history(admin, shared)
    return open_history(url, settings.history_settings())


def connect_history_sink(settings: CommonSettings, shared: MetaSettings) -> ChunkSink:
    """As connect_history, for those who only write."""
    url = history_url(settings)
    with open_history_admin(url, settings.history_settings()) as admin:
        check_history(admin, shared)
    return open_history_sink(url, settings.history_settings())


def create_embedded_history(settings: CommonSettings, shared: MetaSettings) -> None:
    """An embedded history makes its own tables: there is no operator who would."""
    with open_history_admin(history_url(settings), settings.history_settings()) as admin:
        ensure_history(admin, shared)
