"""Settings of a store: choose partitions, bound memory and reads, and set the lag for readiness."""

from __future__ import annotations

from pydantic import Field, model_validator

from tsdb.config.common import ServiceSettings
from tsdb.config.select import SelectFields
from tsdb.config.trials import ExperimentFields
from tsdb.config.types import Partitions, Shard, partition_ranges, shard_of
from tsdb.cpu import core_count
from tsdb.model import defaults
from tsdb.model.time_set import SliceLengths, TimeSet, slice_lengths

_GIB = 1 << 30
_HALF_A_DAY_MS = 12 * 3_600_000
SHARE_BYTES_MIN = 1 << 20  # Eight times the size of an empty head.


class StoreFields(SelectFields):
    """Limits of the read path and of memory; the role `standalone` has them too."""

    partitions: Partitions = Field(
        "", description="Partitions to hold, such as 0-8 or 0-3,7; empty: all, or the shard's."
    )
    shard: Shard = Field(
        "", description="INDEX/COUNT: hold the partitions p with p % COUNT = INDEX; not with partitions."
    )
    workers: int = Field(
        0, ge=0, le=1024, description="Replay threads, each with a share of the partitions; 0: one for each core."
    )
    hold_extra_ms: int = Field(
        0,
        ge=0,
        le=_HALF_A_DAY_MS,
        description="Milliseconds of memory beyond the time set's least hold; more covers a longer outage of history.",
    )
    slice_small_ms: int = Field(
        0, ge=0, le=86_400_000, description="Milliseconds of a freshly sealed slice; 0: the time set's."
    )
    slice_large_ms: int = Field(
        0,
        ge=0,
        le=86_400_000,
        description="Milliseconds of a merged slice, a multiple of slice_small_ms; 0: the time set's.",
    )
    memory_soft_bytes: int = Field(
        defaults.MEMORY_SOFT_BYTES,
        ge=1 << 20,
        le=1 << 50,
        description="Bytes of all heads, with labels and caches; above this slices are dropped early. Each partition "
        "has an equal share.",
    )
    memory_hard_bytes: int = Field(
        defaults.MEMORY_HARD_BYTES,
        ge=1 << 20,
        le=1 << 50,
        description="Bytes of all heads, with labels and caches. A partition above its equal share applies nothing "
        "more and is not ready; others continue. Labels may take half of the share.",
    )
    lag_enter_s: float = Field(5.0, gt=0, le=3600, description="A partition becomes ready below this lag in seconds.")
    lag_leave_s: float = Field(
        20.0,
        gt=0,
        le=3600,
        description="A partition stops being ready above this lag in seconds; the gap avoids flapping.",
    )
    max_lag_s: float = Field(
        0.0,
        ge=0,
        le=3600,
        description="Refuse reads that a larger lag in seconds touches, where they state no max_lag; 0: answer them, "
        "with a warning above 1 s.",
    )
    watch_samples_max: int = Field(
        defaults.WATCH_SAMPLES_MAX,
        ge=1,
        le=1 << 31,
        description="Newest samples of each partition kept for Watch; a reader further behind is disconnected.",
    )
    exemplars_series_max: int = Field(
        defaults.EXEMPLARS_SERIES_MAX,
        ge=1,
        le=100_000,
        description="Newest exemplars of each series kept in memory.",
    )
    exemplars_bytes_max: int = Field(
        defaults.EXEMPLARS_BYTES_MAX,
        ge=0,
        le=1 << 40,
        description="Bytes of the exemplars of all heads, part of the memory limits; above this the oldest go. Each "
        "partition has an equal share. 0: none are kept.",
    )
    snapshot_dir: str = Field(
        "",
        description="Folder for snapshots of the heads, on a local disk and of this process alone: a cache for the "
        "next start. Empty: none; a standalone has them in data_dir.",
    )
    snapshot_interval_s: float = Field(
        600.0,
        ge=1,
        le=86_400,
        description="Seconds between two snapshots of a partition; a start replays what came since the last one.",
    )

    @model_validator(mode="after")
    def _check_limits(self) -> StoreFields:
        if self.partitions and self.shard:
            raise ValueError("partitions and shard: give one of them")
        if self.memory_hard_bytes < self.memory_soft_bytes:
            raise ValueError(
                f"memory_hard_bytes {self.memory_hard_bytes} is below memory_soft_bytes {self.memory_soft_bytes}"
            )
        if self.lag_leave_s <= self.lag_enter_s:
            raise ValueError(f"lag_leave_s {self.lag_leave_s:g} must be above lag_enter_s {self.lag_enter_s:g}")
        return self

    def chosen_partitions(self, count: int) -> tuple[int, ...]:
        """Partitions to hold, ascending, in a log of `count`. Raises ValueError when one does not exist."""
        if self.shard:
            index, shards = shard_of(self.shard)
            return tuple(range(index, count, shards))
        chosen = partition_ranges(self.partitions) if self.partitions else tuple(range(count))
        if chosen and chosen[-1] >= count:
            raise ValueError(f"partition {chosen[-1]} does not exist; the log has 0-{count - 1}")
        return chosen

    def memory_shares(self, partitions: int) -> tuple[int, int]:
        """(soft, hard) bytes of each of `partitions` partitions. Raises ValueError when a share is too small."""
        share = self.memory_hard_bytes // partitions
        if share < SHARE_BYTES_MIN:
            raise ValueError(
                f"memory_hard_bytes {self.memory_hard_bytes} over {partitions} partitions is {share} each; it must be"
                f" at least {SHARE_BYTES_MIN}: raise it, or hold fewer partitions"
            )
        return self.memory_soft_bytes // partitions, share

    def worker_count(self) -> int:
        """`workers`, or the number of cores that the process may use."""
        return self.workers or core_count()

    def slices(self, times: TimeSet) -> SliceLengths:
        """Slice lengths; those that are not given come from the time set. Raises ConfigMismatch when large is not a
        multiple of small."""
        default = slice_lengths(times.name)
        return SliceLengths(self.slice_small_ms or default.small_ms, self.slice_large_ms or default.large_ms)

    def hold_ms(self, times: TimeSet) -> int:
        """The hold of memory, in ms."""
        return times.least_hold_ms + self.hold_extra_ms


class StoreSettings(StoreFields, ExperimentFields, ServiceSettings):
    """All settings of the role `store`."""

    @model_validator(mode="after")
    def _check_slices(self) -> StoreSettings:
        check_slices(self, self.times)
        return self


def check_slices(fields: StoreFields, times: TimeSet) -> None:
    """Raises ValueError when the slice lengths do not fit together."""
    default = slice_lengths(times.name)
    small, large = fields.slice_small_ms or default.small_ms, fields.slice_large_ms or default.large_ms
    if large % small:
        raise ValueError(f"slice_large_ms {large} must be a multiple of slice_small_ms {small}")
