"""Opening a history by URL. `BACK_ENDS` registers each kind of history by its scheme.

`cassandra://host[:port][,host]/keyspace`, `sqlite:///path`, for loaders `parquet:///folder`, or for queriers
`iceberg+file:///folder` and `iceberg+s3://bucket/folder`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tsdb.history.interface import ChunkSink, ChunkStore, ClosableReads
from tsdb.history.settings import CASSANDRA, ICEBERG_FILE, ICEBERG_S3, HistorySettings, Hosts, bad_url
from tsdb.history.shared_settings import HistoryAdmin
from tsdb.model.errors import ConfigMismatch

SQLITE = "sqlite:///"
PARQUET = "parquet:///"


@dataclass(frozen=True, slots=True)
class BackEnd:
    """One kind of history. A function takes the URL, and imports its back end: a driver takes a quarter of a second.

    reads: None for a kind that nothing reads here. store, sink: None for a kind that is kept another way, which
    `instead` says.
    """

    admin: Callable[[str, HistorySettings], HistoryAdmin]
    reads: Callable[[str, HistorySettings], ClosableReads] | None = None
    store: Callable[[str, HistorySettings], ChunkStore] | None = None
    sink: Callable[[str, HistorySettings], ChunkSink] | None = None
    instead: str = ""


def open_history(url: str, settings: HistorySettings | None = None) -> ChunkStore:
    """The history at a URL. Needs no server to answer yet. Raises ConfigMismatch (history_url)."""
    back_end = _back_end(url)
    if back_end.store is None:
        raise bad_url(url, back_end.instead)
    return back_end.store(url, settings or HistorySettings())


def open_history_reads(url: str, settings: HistorySettings | None = None) -> ClosableReads:
    """See open_history; for queriers. Takes the table of a loader too."""
    back_end = _back_end(url)
    if back_end.reads is None:
        raise bad_url(url, back_end.instead)
    return back_end.reads(url, settings or HistorySettings())


def open_history_sink(url: str, settings: HistorySettings | None = None) -> ChunkSink:
    """See open_history; for callers that only write. Takes `parquet:///folder` too."""
    back_end = _back_end(url)
    if back_end.sink is None:
        raise bad_url(url, back_end.instead)
    return back_end.sink(url, settings or HistorySettings())


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


@contextmanager
def needing_pyiceberg() -> Iterator[None]:
    """Imports in the block need the extra `tables`. Raises ConfigMismatch (tables_package) without it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigMismatch(
            f"the packages of Iceberg tables are not installed ({error}): pip install 'kafka-tsdb[tables]'",
            reason="tables_package",
        ) from error


def table_location(url: str) -> str:
    """The URI of the table that `iceberg+file:///folder` or `iceberg+s3://bucket/folder` names."""
    return url.removeprefix("iceberg+").rstrip("/")


def _iceberg(url: str, settings: HistorySettings) -> ClosableReads:
    with needing_pyiceberg():
        from tsdb.history.iceberg.store import IcebergHistory

    return IcebergHistory(table_location(url), settings)


def _iceberg_admin(url: str, settings: HistorySettings) -> HistoryAdmin:
    with needing_pyiceberg():
        from tsdb.history.iceberg.store import IcebergAdmin

    return IcebergAdmin(table_location(url), settings)


_ICEBERG = BackEnd(
    _iceberg_admin,
    _iceberg,
    instead="an Iceberg table is read by queriers and kept by a loader with `tables`; programs read it with their own"
    " readers of Iceberg",
)
BACK_ENDS = {
    CASSANDRA: BackEnd(_cassandra_admin, _cassandra, _cassandra, _cassandra),
    SQLITE: BackEnd(_sqlite_admin, _sqlite, _sqlite, _sqlite),
    PARQUET: BackEnd(
        _parquet_admin,
        sink=_parquet,
        instead="Parquet files are written by loaders; read them with any reader of Parquet",
    ),
    ICEBERG_FILE: _ICEBERG,
    ICEBERG_S3: _ICEBERG,
}
