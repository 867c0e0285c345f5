"""Settings of the Iceberg table that a loader or `tsdb spark run` keeps beside history."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from tsdb.config.common import CommonSettings
from tsdb.model import defaults


def _catalog_url(text: str) -> str:
    for scheme in ("sqlite:///", "pyiceberg://"):
        if text == "" or (text.startswith(scheme) and len(text) > len(scheme)):
            return text
    raise ValueError(f"{text!r} is neither sqlite:///PATH nor pyiceberg://NAME")


CatalogUrl = Annotated[str, AfterValidator(_catalog_url)]


class TablesFields(BaseModel):
    """Catalog and name of the table; the roles `loader` and `standalone`, `tsdb spark run` and `tsdb tables` have
    them."""

    tables: CatalogUrl = Field(
        "",
        description="Catalog of the Iceberg table that the process keeps (docs/tables.md): sqlite:///PATH, or "
        "pyiceberg://NAME for one of pyiceberg's configuration (REST and others); empty: no table.",
    )
    tables_warehouse: str = Field(
        "",
        description="Folder or URI (s3://BUCKET/FOLDER) of the table's files; only with a SQLite catalog. Empty: a "
        "folder beside the catalog.",
    )
    tables_name: str = Field(
        "tsdb.samples",
        pattern=r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$",
        description="NAMESPACE.TABLE. The samples of one log belong to one table.",
    )
    tables_commit_interval_s: float = Field(
        60.0,
        ge=0.1,
        le=3600,
        description="Seconds from the first new chunk to the snapshot that has it. Shorter intervals make more and "
        "smaller files.",
    )
    tables_upkeep_interval_s: float = Field(
        3600.0,
        ge=0,
        le=30 * 86_400,
        description="Seconds between two turns of the table's upkeep: small files joined, snapshots expired, days "
        "dropped; 0: none, `tsdb tables` does it.",
    )
    tables_snapshots_kept_s: float = Field(
        86_400.0,
        ge=60,
        le=3650 * 86_400,
        description="Age at which snapshots expire; a query of another program that runs longer fails.",
    )
    tables_retention_s: float = Field(
        0.0,
        ge=0,
        le=3650 * 86_400,
        description="Age at which whole days of samples are dropped from the table; 0: never.",
    )
    tables_labels_bytes_max: int = Field(
        defaults.TABLES_LABELS_BYTES_MAX,
        ge=1 << 20,
        le=1 << 40,
        description="Memory for the labels of all series of the topic series, some 400 bytes each; above it the table "
        "is not kept, and history is loaded as before.",
    )


class SparkRunSettings(TablesFields, CommonSettings):
    """Settings of `tsdb spark run`: those of log and history, and of the table that it keeps."""
