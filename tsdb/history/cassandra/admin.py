"""Creates and checks the tables of a history in Cassandra."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self

from cassandra.cluster import Session

from tsdb.history.cassandra.errors import translate_cassandra_errors
from tsdb.history.cassandra.session import open_cluster
from tsdb.history.cassandra.tables import TABLES, Table, create_keyspace
from tsdb.history.settings import HistorySettings, Hosts
from tsdb.history.shared_settings import HINT

DDL_TIMEOUT_S = 60.0  # A cluster takes seconds to agree on a table.
REPLICATION = 3

_COLUMNS = "SELECT table_name, column_name, kind, position, type FROM system_schema.columns WHERE keyspace_name = %s"
_COMPRESSION = "SELECT table_name, compression FROM system_schema.tables WHERE keyspace_name = %s"
_KEY_KINDS = ("partition_key", "clustering")


class CassandraHistoryAdmin:
    """HistoryAdmin of one keyspace. Not thread-safe. The constructor raises Unavailable when no host answers."""

    def __init__(self, hosts: Hosts, settings: HistorySettings) -> None:
        self._keyspace = hosts.keyspace
        self._where = f"{','.join(hosts.names)}:{hosts.port}/{hosts.keyspace}"
        self._cluster = open_cluster(hosts, settings)
        try:
            with translate_cassandra_errors(f"connecting to {self._where}"):
                self._session: Session = self._cluster.connect()
        except BaseException:
            self._cluster.shutdown()
            raise

    def create(self, shared: Mapping[str, str], *, replication: int | None = None, ttl_days: int | None = None) -> bool:
        """See HistoryAdmin. replication: None means REPLICATION."""
        have = self._columns()
        missing = [table for table in TABLES if table.name not in have]
        if not missing:
            return False
        self._ddl(create_keyspace(self._keyspace, replication or REPLICATION))
        for table in missing:
            self._ddl(table.create(self._keyspace, ttl_days))
        if any(table.name == "shared" for table in missing):
            for name, value in shared.items():
                self._execute(f"INSERT INTO {self._keyspace}.shared (name, value) VALUES (%s, %s)", name, value)
        return True

    def differences(self) -> list[str]:
        have = self._columns()
        if not have:
            return [f"keyspace {self._keyspace} has no tables of ours: {HINT}"]
        compressed = {
            table: options.get("enabled", "true") != "false" and "class" in options
            for table, options in self._execute(_COMPRESSION, self._keyspace)
        }
        return [
            line
            for table in TABLES
            for line in _table_differences(table, have.get(table.name), compressed.get(table.name))
        ]

    def shared(self) -> dict[str, str]:
        return dict(self._execute(f"SELECT name, value FROM {self._keyspace}.shared"))

    def close(self) -> None:
        self._cluster.shutdown()

    def _columns(self) -> dict[str, dict[str, str]]:
        """Types of the columns and their positions in the key, by table and column."""
        tables: dict[str, dict[str, str]] = {}
        for table, column, kind, position, type_ in self._execute(_COLUMNS, self._keyspace):
            tables.setdefault(table, {})[column] = _described(type_, kind, position)
        return tables

    def _ddl(self, statement: str) -> None:
        with translate_cassandra_errors(f"creating {self._where}"):
            self._session.execute(statement, timeout=DDL_TIMEOUT_S)

    def _execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with translate_cassandra_errors(f"looking at {self._where}"):
            return list(self._session.execute(statement, values))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _table_differences(table: Table, have: dict[str, str] | None, compressed: bool | None) -> Iterator[str]:
    if have is None:
        yield f"table {table.name} is missing: {HINT}"
        return
    want = dict(_wanted(table))
    for column in sorted({*have, *want}):
        if have.get(column) != want.get(column):
            yield (
                f"table {table.name}: column {column} is {have.get(column, 'missing')}, "
                f"must be {want.get(column, 'absent')}"
            )
    if compressed and not table.compressed:
        yield f"table {table.name}: the server compresses it, must not"


def _wanted(table: Table) -> Iterator[tuple[str, str]]:
    for column, type_ in table.columns:
        kind, position = "regular", -1
        for key_kind, key in zip(_KEY_KINDS, (table.partition_key, table.clustering), strict=True):
            if column in key:
                kind, position = key_kind, key.index(column)
        yield column.strip('"'), _described(type_, kind, position)


def _described(type_: str, kind: str, position: int) -> str:
    return f"{type_} ({kind.replace('_', ' ')} {position})" if kind in _KEY_KINDS else type_
