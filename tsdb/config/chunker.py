"""Settings of a chunker: bound the memory of open windows, and the bytes in flight to the log."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field, model_validator

from tsdb.config.common import WorkerSettings, check_group_drain

_MIB = 1 << 20


class ChunkerFields(BaseModel):
    """Limits of the chunk stage; the role `standalone` has them too."""

    chunk_memory_bytes: int = Field(
        4096 * _MIB,
        ge=_MIB,
        le=1 << 50,
        description="Bytes of open windows; above this the chunk stage applies nothing and is not ready.",
    )
    chunk_inflight_bytes_max: int = Field(
        32 * _MIB, ge=_MIB, le=1 << 40, description="Bytes of chunks in flight to the log; further chunks wait."
    )


class ChunkerSettings(ChunkerFields, WorkerSettings):
    """All settings of the role `chunker`."""

    @model_validator(mode="after")
    def _check_drain(self) -> Self:
        check_group_drain(self)
        return self
