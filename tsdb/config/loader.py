"""Settings of a loader: writes in flight, and bytes read ahead."""

from __future__ import annotations

from pydantic import BaseModel, Field

from tsdb.config.common import CommonSettings

_MIB = 1 << 20


class LoaderFields(BaseModel):
    """Limits of writes to history; the role `standalone` has them too."""

    load_group: str = Field(
        "",
        max_length=100,
        pattern=r"^[A-Za-z0-9._-]*$",
        description="Loaders of one group share the work of one history; another history of the same log wants another "
        "group. Empty: loader, or loader-parquet for files.",
    )
    load_concurrency: int = Field(
        64,
        ge=1,
        le=4096,
        description="Writes to history at once; their bytes are bounded by history_inflight_bytes_max too.",
    )
    load_buffer_bytes_max: int = Field(
        128 * _MIB, ge=_MIB, le=1 << 40, description="Bytes read and not yet in history; more is not read."
    )
    load_series_remembered_max: int = Field(
        1_000_000,
        ge=1,
        le=1_000_000_000,
        description="Announcements known to be in history, some 70 bytes each; one outside is written once more.",
    )
    load_accept_replay: bool = Field(
        False,
        description="Pass over a commit of unknown version, with a wrong checksum or of another topic, and load again "
        "from its offset. Only to get past a refusal that named it.",
    )


class LoaderSettings(LoaderFields, CommonSettings):
    """The role `loader`."""
