"""Opening a history by URL: `cassandra://host[:port][,host]/keyspace`, `sqlite:///path`, or for loaders `parquet:///folder`."""

from __future__ import annotations

from pathlib import Path

from tsdb.history.hosts import CASSANDRA, Hosts, bad_url
from tsdb.history.interface import ChunkSink, ChunkStore
from tsdb.history.settings import HistorySettings
from tsdb.history.shared_settings import HistoryAdmin

SQLITE = "sqlite:///"
PARQUET = "parquet:///"


def open_history(url: str, settings: HistorySettings | None = None) -> ChunkStore:
    """The history at a URL. Needs no server to answer yet. Raises ConfigMismatch (history_url)."""
    settings = settings or HistorySettings()
    if url.startswith(CASSANDRA):
        # Imported here, because the import of the driver takes a quarter of a second.
        from tsdb.history.cassandra.store import CassandraStore

        return CassandraStore(Hosts.parse(url), settings)
    if url.startswith(PARQUET):
        raise bad_url(url, "Parquet files are written by loaders; read them with any reader of Parquet")
    from tsdb.history.sqlite.store import SqliteStore

    return SqliteStore(_path(url, SQLITE), settings)


def open_history_sink(url: str, settings: HistorySettings | None = None) -> ChunkSink:
    """See open_history; for callers that only write. Takes `parquet:///folder` too."""
    if not url.startswith(PARQUET):
        return open_history(url, settings)
    from tsdb.history.parquet.sink import ParquetSink

    return ParquetSink(_path(url, PARQUET), settings or HistorySettings())


def open_history_admin(url: str, settings: HistorySettings | None = None) -> HistoryAdmin:
    """The admin that creates and checks a history. Raises ConfigMismatch (history_url), Unavailable."""
    settings = settings or HistorySettings()
    if url.startswith(CASSANDRA):
        from tsdb.history.cassandra.admin import CassandraHistoryAdmin

        return CassandraHistoryAdmin(Hosts.parse(url), settings)
    if url.startswith(PARQUET):
        from tsdb.history.parquet.admin import ParquetAdmin

        return ParquetAdmin(_path(url, PARQUET))
    from tsdb.history.sqlite.admin import SqliteHistoryAdmin

    return SqliteHistoryAdmin(_path(url, SQLITE))


def _path(url: str, scheme: str) -> Path:
    path = url.removeprefix(scheme)
    if not url.startswith(scheme) or not path:
        raise bad_url(url, "it names neither a cluster nor a file")
    # Three slashes and a relative path; a fourth slash makes it absolute, as in SQLAlchemy.
    return Path(path)
