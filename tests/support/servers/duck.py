"""DuckDB with its extension for Iceberg, which packages of the registry bring along."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from examples.table_duckdb import load_iceberg


@contextmanager
def iceberg_connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection in memory, with times in UTC."""
    with duckdb.connect() as connection:
        load_iceberg(connection)
        connection.execute("SET TimeZone = 'UTC'")
        yield connection
