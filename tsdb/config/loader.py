"""Settings of a loader: writes in flight, and bytes read ahead."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field, model_validator

from tsdb.config.common import HistoryFields, WorkerSettings, check_group_drain
from tsdb.config.tables import TablesFields
from tsdb.model import defaults

_MIB = 1 << 20


class LoaderFields(BaseModel):
    """Limits of writes to history; the role `standalone` has them too."""

    load_group: str = Field(
        "",
        max_length=100,
        pattern=r"^[A-Za-z0-9._-]*$",
        description="Consumer group. Loaders of one group share the work of one history; another history of the same "
        "log needs another group. Empty: loader, or loader-parquet for files.",
    )
    load_concurrency: int = Field(
        defaults.LOAD_CONCURRENCY,
        ge=1,
        le=4096,
        description="Writes to Cassandra at once, 4096 to a file; history_inflight_bytes_max bounds their bytes too.",
    )
    load_buffer_bytes_max: int = Field(
        defaults.LOAD_BUFFER_BYTES_MAX,
        ge=_MIB,
        le=1 << 40,
        description="Bytes read and not yet in history; above this reading pauses.",
    )
    load_series_remembered_max: int = Field(
        defaults.LOAD_SERIES_REMEMBERED_MAX,
        ge=1,
        le=1_000_000_000,
        description="Announcements remembered as written to history, some 70 bytes each; others are written again.",
    )
    load_accept_replay: bool = Field(
        False,
        description="Accept a commit of unknown version or with a wrong checksum, and load again from its offset. Only "
        "after a refusal that asks for it.",
    )


class LoaderSettings(LoaderFields, TablesFields, HistoryFields, WorkerSettings):
    """All settings of the role `loader`."""

    @model_validator(mode="after")
    def _check_drain(self) -> Self:
        check_group_drain(self)
        return self
