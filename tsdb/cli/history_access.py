"""The way of commands and roles to history: settings to a checked connection."""

from __future__ import annotations

from tsdb.config import CommonSettings
from tsdb.history.interface import ChunkSink, ChunkStore
from tsdb.history.open import open_history, open_history_admin, open_history_sink
from tsdb.history.shared_settings import check_history, ensure_history
from tsdb.model.errors import ConfigMismatch
from tsdb.model.meta import MetaSettings

# Of all settings, those that say where history is.
HISTORY_SETTINGS = (
    *("config", "history", "history_write_timeout_s", "history_read_timeout_s", "history_inflight_bytes_max"),
    *(name for name in CommonSettings.model_fields if name.startswith("cassandra_")),
)


class ToolSettings(CommonSettings):
    """Of commands that ask history alone: no log is needed."""

    log: str = ""


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


def history_url(settings: CommonSettings) -> str:
    """Raises ConfigMismatch (history_url) when none is given."""
    if not settings.history:
        raise ConfigMismatch("history is required: --history, TSDB_HISTORY or the file", reason="history_url")
    return settings.history
