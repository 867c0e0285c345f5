"""The tables of a history in Cassandra. Layout and reasons: docs/formats/cassandra.md, version 1."""

from __future__ import annotations

from dataclasses import dataclass

DAY_S = 24 * 3600
EPOCH_DAYS = 30
TTL_WINDOWS = 30  # Number of time windows, and so of files, into which TWCS splits the rows that have not expired.


@dataclass(frozen=True, slots=True)
class Table:
    """One table: columns with their CQL types, in order; the key. compressed: whether the server compresses it."""

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
