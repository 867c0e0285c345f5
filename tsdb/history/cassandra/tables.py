"""Defines the tables and statements of a history in Cassandra. Layout and reasons: docs/formats/cassandra.md, version
1.

The statements of a history in Cassandra. All of them may be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from cassandra.cluster import Session
from cassandra.query import PreparedStatement

DAY_S = 24 * 3600
EPOCH_DAYS = 30
TTL_WINDOWS = 30  # Number of time windows, and so of files, into which TWCS splits the rows that have not expired.

_CHUNK_KEY = 'pack_id = ? AND month = ? AND window_start = ? AND "order" = ? AND kind = ? AND part = ?'
_KEY_COLUMNS = 'pack_id, window_start, "order", kind, part'
_COLUMNS = f"{_KEY_COLUMNS}, value"
_OF_MONTH = "FROM {ks}.chunks WHERE pack_id = ? AND month = ? AND window_start >= ? AND window_start < ?"
_HOLE_KEY = "partition = ? AND start_ms = ? AND end_ms = ? AND pack_id = ? AND record_offset = ?"

_CQL = {
    "put_chunk": 'INSERT INTO {ks}.chunks (pack_id, month, window_start, "order", kind, part, value) '
    "VALUES (?, ?, ?, ?, ?, ?, ?)",
    "delete_chunk": f"DELETE FROM {{ks}}.chunks WHERE {_CHUNK_KEY}",
    "read_chunks": f"SELECT {_COLUMNS} {_OF_MONTH}",
    "read_keys": f"SELECT {_KEY_COLUMNS} {_OF_MONTH}",
    "scan_chunks": f"SELECT {_COLUMNS} FROM {{ks}}.chunks "
    "WHERE token(pack_id, month) > ? AND token(pack_id, month) <= ?",
    # The filter is a slice of the clustering order: a server searches each row key's index for it, and drops no row
    # that it has read.
    "scan_windows": f"SELECT {_COLUMNS} FROM {{ks}}.chunks "
    "WHERE token(pack_id, month) > ? AND token(pack_id, month) <= ? AND window_start >= ? AND window_start < ? "
    "ALLOW FILTERING",
    "read_sizes": "SELECT range_start, range_end, mean_partition_size, partitions_count FROM system.size_estimates "
    "WHERE keyspace_name = '{ks}' AND table_name = 'chunks'",
    # X is the write time, so the highest X wins. For one X the higher emitted_through_ms wins, because of equal write
    # times Cassandra keeps the higher value.
    "put_loaded": "INSERT INTO {ks}.loaded (topic_id, partition, position, emitted_through_ms) VALUES (?, ?, ?, ?) "
    "USING TIMESTAMP ?",
    "read_loaded": "SELECT topic_id, partition, position, emitted_through_ms FROM {ks}.loaded WHERE topic_id IN (?, ?)",
    "loaded_topics": "SELECT DISTINCT topic_id FROM {ks}.loaded",
    "put_hole": "INSERT INTO {ks}.holes (partition, start_ms, end_ms, pack_id, record_offset, reason) "
    "VALUES (?, ?, ?, ?, ?, ?)",
    "accept_hole": "INSERT INTO {ks}.holes (partition, start_ms, end_ms, pack_id, record_offset, reason, accepted) "
    "VALUES (?, ?, ?, ?, ?, ?, true)",
    "delete_hole": f"DELETE FROM {{ks}}.holes WHERE {_HOLE_KEY}",
    "read_holes": "SELECT partition, start_ms, end_ms, pack_id, record_offset, reason, accepted FROM {ks}.holes",
    "put_series": "INSERT INTO {ks}.series (epoch, name, bucket, series_id, pack_id, partition, labels) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)",
    "read_series": "SELECT series_id, pack_id, partition, labels FROM {ks}.series "
    "WHERE epoch = ? AND name = ? AND bucket = ?",
    "scan_series": "SELECT epoch, series_id, pack_id, partition, labels FROM {ks}.series "
    "WHERE token(epoch, name, bucket) > ? AND token(epoch, name, bucket) <= ?",
    "put_metric_name": "INSERT INTO {ks}.metric_names (epoch, name) VALUES (?, ?)",
    "read_epochs": "SELECT DISTINCT epoch FROM {ks}.metric_names",
    "read_metric_names": "SELECT name FROM {ks}.metric_names WHERE epoch = ?",
}


@dataclass(frozen=True, slots=True)
class Table:
    """One table: columns with their CQL types, in order, and the key. compressed: whether the server compresses the
    table."""

    name: str
    columns: tuple[tuple[str, str], ...]
    partition_key: tuple[str, ...]
    clustering: tuple[str, ...] = ()
    compressed: bool = True
    # Days added to the requested TTL; None: rows of this table never expire.
    ttl_days_more: int | None = None

    def create(self, keyspace: str, ttl_days: int | None = None) -> str:
        """The CREATE TABLE statement."""
        columns = ", ".join(f"{name} {kind}" for name, kind in self.columns)
        key = f"({', '.join(self.partition_key)})"
        if self.clustering:
            key += ", " + ", ".join(self.clustering)
        return (
            f"CREATE TABLE IF NOT EXISTS {keyspace}.{self.name} ({columns}, PRIMARY KEY ({key})) "
            f"WITH {' AND '.join(self._options(ttl_days))}"
        )

    def _options(self, ttl_days: int | None) -> list[str]:
        # Chunks are already compressed; LZ4 would cost CPU at every compaction and gain nothing.
        compression = "{'class': 'LZ4Compressor'}" if self.compressed else "{'enabled': 'false'}"
        options = [f"compression = {compression}"]
        if ttl_days is None or self.ttl_days_more is None:
            return [*options, "compaction = {'class': 'UnifiedCompactionStrategy'}"]
        days = ttl_days + self.ttl_days_more
        window_days = max(1, days // TTL_WINDOWS)
        return [
            *options,
            "compaction = {'class': 'TimeWindowCompactionStrategy', "
            f"'compaction_window_unit': 'DAYS', 'compaction_window_size': '{window_days}'}}",
            f"default_time_to_live = {days * DAY_S}",
        ]


TABLES = (
    Table("shared", (("name", "text"), ("value", "text")), ("name",)),
    Table(
        "chunks",
        (
            ("pack_id", "bigint"),
            ("month", "int"),
            ("window_start", "bigint"),
            ('"order"', "bigint"),
            ("kind", "tinyint"),
            ("part", "bigint"),
            ("value", "blob"),
        ),
        ("pack_id", "month"),
        ("window_start", '"order"', "kind", "part"),
        compressed=False,
        ttl_days_more=0,
    ),
    Table(
        "series",
        (
            ("epoch", "int"),
            ("name", "blob"),
            ("bucket", "int"),
            ("series_id", "bigint"),
            ("pack_id", "bigint"),
            ("partition", "int"),
            ("labels", "blob"),
        ),
        ("epoch", "name", "bucket"),
        ("series_id",),
        # Written at the start of an epoch, needed until the epoch's last chunk is gone.
        ttl_days_more=2 * EPOCH_DAYS,
    ),
    Table("metric_names", (("epoch", "int"), ("name", "blob")), ("epoch",), ("name",), ttl_days_more=2 * EPOCH_DAYS),
    Table(
        "loaded",
        (("topic_id", "text"), ("partition", "int"), ("position", "bigint"), ("emitted_through_ms", "bigint")),
        ("topic_id",),
        ("partition",),
    ),
    Table(
        "holes",
        (
            ("partition", "int"),
            ("start_ms", "bigint"),
            ("end_ms", "bigint"),
            ("pack_id", "bigint"),
            ("record_offset", "bigint"),
            ("reason", "text"),
            ("accepted", "boolean"),
        ),
        ("partition",),
        ("start_ms", "end_ms", "pack_id", "record_offset"),
    ),
)


def create_keyspace(keyspace: str, replication: int) -> str:
    """The CREATE KEYSPACE statement, with `replication` copies in every data centre."""
    return (
        f"CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = "
        f"{{'class': 'NetworkTopologyStrategy', 'replication_factor': {replication}}}"
    )


@dataclass(frozen=True, slots=True)
class Statements:
    """All statements, each prepared once per session."""

    put_chunk: PreparedStatement
    delete_chunk: PreparedStatement
    read_chunks: PreparedStatement
    read_keys: PreparedStatement
    scan_chunks: PreparedStatement
    scan_windows: PreparedStatement
    read_sizes: PreparedStatement
    put_loaded: PreparedStatement
    read_loaded: PreparedStatement
    loaded_topics: PreparedStatement
    put_hole: PreparedStatement
    accept_hole: PreparedStatement
    delete_hole: PreparedStatement
    read_holes: PreparedStatement
    put_series: PreparedStatement
    read_series: PreparedStatement
    scan_series: PreparedStatement
    put_metric_name: PreparedStatement
    read_epochs: PreparedStatement
    read_metric_names: PreparedStatement


def prepare(session: Session, keyspace: str) -> Statements:
    """Prepare all statements. Raises the driver's errors, also for a missing table."""
    prepared = {}
    for field in fields(Statements):
        statement = session.prepare(_CQL[field.name].format(ks=keyspace))
        statement.is_idempotent = True  # This lets the driver try a second replica when one is slow.
        prepared[field.name] = statement
    return Statements(**prepared)
