"""Settings of reads: limit one answer, for stores and queriers."""

from __future__ import annotations

from pydantic import BaseModel, Field

from tsdb.model import defaults


class SelectFields(BaseModel):
    """Limits of one read. A caller can lower them but not raise them."""

    select_series_max: int = Field(
        defaults.SELECT_SERIES_MAX, ge=1, le=1 << 31, description="Series that one Select may match."
    )
    select_samples_max: int = Field(
        defaults.SELECT_SAMPLES_MAX, ge=1, le=1 << 40, description="Samples that one Select may touch."
    )
    select_bytes_max: int = Field(
        defaults.SELECT_BYTES_MAX, ge=1024, le=1 << 40, description="Bytes of the payload of one answer."
    )
    answers_bytes_max: int = Field(
        defaults.ANSWERS_BYTES_MAX,
        ge=1 << 24,
        le=1 << 50,
        description="Bytes of all answers being gathered and sent, and of the vectors that PromQL computes from them; "
        "one connection, and one PromQL query, may hold half.",
    )
    read_timeout_s: float = Field(
        defaults.READ_TIMEOUT_S,
        gt=0,
        le=86_400,
        description="Longest time of one read, in seconds; a caller's deadline may be sooner.",
    )
