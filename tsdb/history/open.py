"""Opening a history by URL: `cassandra://host[:port][,host]/keyspace` or `sqlite:///path`."""

from __future__ import annotations

from pathlib import Path

from tsdb.history.hosts import CASSANDRA, Hosts, bad_url
from tsdb.history.interface import ChunkStore
from tsdb.history.settings import HistorySettings
from tsdb.history.shared_settings import HistoryAdmin

SQLITE = "sqlite:///"


def open_history(url: str, settings: HistorySettings | None = None) -> ChunkStore:
    """The history at a URL. Needs no server to answer yet. Raises ConfigMismatch (history_url)."""
    settings = settings or HistorySettings()
    if url.startswith(CASSANDRA):
        # Imported where it is used: the driver takes a quarter of a second that others need not spend.
        from tsdb.history.cassandra.store import CassandraStore

        return CassandraStore(Hosts.parse(url), settings)
    from tsdb.history.sqlite.store import SqliteStore

    return SqliteStore(_path(url), settings)


def open_history_admin(url: str, settings: HistorySettings | None = None) -> HistoryAdmin:
    """What makes and checks the history at a URL. Raises ConfigMismatch (history_url), Unavailable."""
    settings = settings or HistorySettings()
    if url.startswith(CASSANDRA):
        from tsdb.history.cassandra.admin import CassandraHistoryAdmin

        return CassandraHistoryAdmin(Hosts.parse(url), settings)
    from tsdb.history.sqlite.admin import SqliteHistoryAdmin

    return SqliteHistoryAdmin(_path(url))


def _path(url: str) -> Path:
    path = url.removeprefix(SQLITE)
    if not url.startswith(SQLITE) or not path:
        raise bad_url(url, "it names neither a cluster nor a file")
    # Three slashes and a path; a fourth makes it absolute, as in SQLAlchemy.
    return Path(path)
