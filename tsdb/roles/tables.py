"""Opens the Iceberg table for roles and commands. pyiceberg, an optional package, is imported with the first use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tsdb.config import LoaderSettings, StandaloneSettings
from tsdb.config.tables import TablesFields
from tsdb.log.interface import Log
from tsdb.model.clock import SystemClock
from tsdb.model.errors import ConfigMismatch
from tsdb.ops.lifecycle import Component

if TYPE_CHECKING:
    from tsdb.tables.catalog import TableSettings

BUCKETS = 16  # Metric buckets of a new table.


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


def table_settings(settings: TablesFields) -> TableSettings:
    """The table of the settings. Raises ConfigMismatch (tables_url, tables_package)."""
    if not settings.tables:
        raise ConfigMismatch("no table is named: --tables, TSDB_TABLES or the file", reason="tables_url")
    with needing_pyiceberg():
        from tsdb.tables.catalog import TableSettings
    return TableSettings(settings.tables, settings.tables_warehouse, settings.tables_name)


def table_keepers(
    settings: LoaderSettings | StandaloneSettings, log: Log, *, create_buckets: int | None = None
) -> list[Component]:
    """The keeper of the table; empty without one. create_buckets: see KeeperOptions."""
    if not settings.tables:
        return []
    table = table_settings(settings)
    from tsdb.tables.keeper import KeeperOptions, TableKeeper

    options = KeeperOptions(
        table, settings.times, settings.tables_commit_interval_s, create_buckets, settings.tables_labels_bytes_max
    )
    return [TableKeeper(log, options, SystemClock())]
