"""Opens the Iceberg table for roles and commands. pyiceberg, an optional package, is imported with the first use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tsdb.config import LoaderSettings, StandaloneSettings
from tsdb.config.tables import SparkRunSettings, TablesFields
from tsdb.history.open import needing_pyiceberg, table_location
from tsdb.history.settings import ICEBERG_FILE, ICEBERG_S3
from tsdb.history.shared_settings import shared_rows
from tsdb.log.interface import Log
from tsdb.model.clock import SystemClock
from tsdb.model.errors import ConfigMismatch
from tsdb.model.meta import MetaSettings
from tsdb.ops.lifecycle import Component

if TYPE_CHECKING:
    from tsdb.history.iceberg.catalog import TableSettings

BUCKETS = 16  # Metric buckets of a new table.

KeeperSettings = LoaderSettings | StandaloneSettings | SparkRunSettings


def table_settings(settings: TablesFields) -> TableSettings:
    """The table of the settings. Raises ConfigMismatch (tables_url, tables_package)."""
    if not settings.tables:
        raise ConfigMismatch("no table is named: --tables, TSDB_TABLES or the file", reason="tables_url")
    with needing_pyiceberg():
        from tsdb.history.iceberg.catalog import TableSettings
    return TableSettings(settings.tables, settings.tables_warehouse, settings.tables_name)


def reads_table(history: str) -> bool:
    """Whether a URL of history names an Iceberg table."""
    return history.startswith((ICEBERG_FILE, ICEBERG_S3))


def ensure_table(settings: StandaloneSettings, shared: MetaSettings) -> None:
    """Create the table that is the history of a single process, which has no operator to do so."""
    table = _kept_table(settings)
    from tsdb.history.iceberg.catalog import create_table, load_table, open_catalog, series_table

    with open_catalog(table) as catalog:
        create_table(catalog, table.name, BUCKETS, table.location)
        series_table(catalog, load_table(catalog, table.name), shared_rows(shared))


@dataclass(frozen=True, slots=True)
class Keeping:
    """components: the keeper and the upkeep of a table. problem: reason and message of the keeper, for readiness."""

    components: list[Component]
    problem: Callable[[], tuple[str, str]]


def keeping_table(
    settings: KeeperSettings, log: Log, shared: MetaSettings, *, create_buckets: int | None = None
) -> Keeping:
    """The components that keep the table of the settings; none without one. create_buckets: see KeeperOptions."""
    if not settings.tables and not reads_table(settings.history):
        return Keeping([], lambda: ("", ""))
    table = _kept_table(settings)
    from tsdb.history.iceberg.keeper import KeeperOptions, TableKeeper
    from tsdb.history.iceberg.upkeep import TableUpkeep, UpkeepOptions

    options = KeeperOptions(
        table,
        settings.times,
        settings.tables_commit_interval_s,
        create_buckets,
        settings.tables_labels_bytes_max,
        shared_rows(shared),
    )
    keeper = TableKeeper(log, options, SystemClock())
    components: list[Component] = [keeper]
    if settings.tables_upkeep_interval_s:
        upkeep = UpkeepOptions(
            settings.tables_upkeep_interval_s, settings.tables_snapshots_kept_s, settings.tables_retention_s
        )
        components.append(TableUpkeep(table, upkeep, lambda: keeper.problem() is None, SystemClock()))
    return Keeping(components, keeper.not_kept)


def _kept_table(settings: KeeperSettings) -> TableSettings:
    """The table of the settings; where it is the history too, it lies at the address that queriers read."""
    if not reads_table(settings.history):
        return table_settings(settings)
    location = table_location(settings.history)
    if settings.tables:
        return replace(table_settings(settings), location=location)
    if not settings.history.startswith(ICEBERG_FILE):
        raise ConfigMismatch(
            f"history {settings.history} is kept in a catalog: give --tables pyiceberg://NAME or sqlite:///PATH",
            reason="tables_url",
        )
    with needing_pyiceberg():
        from tsdb.history.iceberg.catalog import TableSettings
    # Its own catalog, beside the table.
    path = location.removeprefix("file://")
    return TableSettings(f"sqlite:///{path}.db", name=settings.tables_name, location=location)
