"""Opening a history by URL. `BACK_ENDS` registers each kind of history by its scheme.

`cassandra://host[:port][,host]/keyspace`, `sqlite:///path`, or for loaders `parquet:///folder`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tsdb.history.interface import ChunkSink, ChunkStore
from tsdb.history.settings import CASSANDRA, HistorySettings, Hosts, bad_url
from tsdb.history.shared_settings import HistoryAdmin

SQLITE = "sqlite:///"
PARQUET = "parquet:///"


@dataclass(frozen=True, slots=True)
class BackEnd:
    """One kind of history. A function takes the URL, and imports its back end: a driver takes a quarter of a second.

    store: None for a kind that loaders write and nothing reads here.
    """

    store: Callable[[str, HistorySettings], ChunkStore] | None
    sink: Callable[[str, HistorySettings], ChunkSink]
    admin: Callable[[str, HistorySettings], HistoryAdmin]


def open_history(url: str, settings: HistorySettings | None = None) -> ChunkStore:
    """The history at a URL. Needs no server to answer yet. Raises ConfigMismatch (history_url)."""
    store = _back_end(url).store
    if store is None:
        raise bad_url(url, "Parquet files are written by loaders; read them with any reader of Parquet")
    return store(url, settings or HistorySettings())


def open_history_sink(url: str, settings: HistorySettings | None = None) -> ChunkSink:
    """See open_history; for callers that only write. Takes `parquet:///folder` too."""
    return _back_end(url).sink(url, settings or HistorySettings())


def open_history_admin(url: str, settings: HistorySettings | None = None) -> HistoryAdmin:
    """The admin that creates and checks a history. Raises ConfigMismatch (history_url), Unavailable."""
    return _back_end(url).admin(url, settings or HistorySettings())


def _back_end(url: str) -> BackEnd:
    for scheme, back_end in BACK_ENDS.items():
        if url.startswith(scheme):
            return back_end
    raise bad_url(url, "it names neither a cluster nor a file")


def _path(url: str, scheme: str) -> Path:
    path = url.removeprefix(scheme)
    if not path:
        raise bad_url(url, "it names neither a cluster nor a file")
    # A URL with three slashes has a relative path; a fourth slash makes it absolute, as in SQLAlchemy.
    return Path(path)


def _cassandra(url: str, settings: HistorySettings) -> ChunkStore:
    from tsdb.history.cassandra.store import CassandraStore

    return CassandraStore(Hosts.parse(url), settings)


def _cassandra_admin(url: str, settings: HistorySettings) -> HistoryAdmin:
    from tsdb.history.cassandra.admin import CassandraHistoryAdmin

    return CassandraHistoryAdmin(Hosts.parse(url), settings)


def _sqlite(url: str, settings: HistorySettings) -> ChunkStore:
    from tsdb.history.sqlite.store import SqliteStore

    return SqliteStore(_path(url, SQLITE), settings)


def _sqlite_admin(url: str, settings: HistorySettings) -> HistoryAdmin:
    from tsdb.history.sqlite.admin import SqliteHistoryAdmin

    return SqliteHistoryAdmin(_path(url, SQLITE))


def _parquet(url: str, settings: HistorySettings) -> ChunkSink:
    from tsdb.history.parquet.sink import ParquetSink

    return ParquetSink(_path(url, PARQUET), settings)


def _parquet_admin(url: str, settings: HistorySettings) -> HistoryAdmin:
    from tsdb.history.parquet.folder import ParquetAdmin

    return ParquetAdmin(_path(url, PARQUET))


BACK_ENDS = {
    CASSANDRA: BackEnd(_cassandra, _cassandra, _cassandra_admin),
    SQLITE: BackEnd(_sqlite, _sqlite, _sqlite_admin),
    PARQUET: BackEnd(None, _parquet, _parquet_admin),
}
