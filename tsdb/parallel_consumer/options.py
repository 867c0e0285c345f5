"""Options of a parallel consumer: set bounds and times, and are checked on construction."""

from __future__ import annotations

from dataclasses import dataclass, fields

from tsdb.parallel_consumer.errors import InvalidConfig

UNITS_MIN = 1_024
UNITS_MAX = 4_095  # Brokers accept 4,096; Kafka's client passes 4,095 of them intact.

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Options:
    """Each bound applies to the whole consumer; a record beyond it waits.

    concurrency: number of records handled at once. running_bytes_max: bound of their bytes; a larger record runs alone.
    records_max, bytes_max: records read and not finished, and their bytes. poll_records_max: records fetched by one
    poll. commit_interval_s: time between commits. commit_records: commit earlier, after this many finished records; 1:
    after each. drain_s: how long a shutdown waits for running records. rebalance_drain_s: how long a revoked partition
    waits for them; keep it below the group's rebalance timeout. stall_after_s: a record unfinished for this long is
    reported. metadata_units_max: UTF-16 units of commit metadata that the brokers accept. write_ahead_s: for this long
    after an assignment, each record is committed as running before it is handled, so that a record that crashes the
    process at once is counted. Only with ErrorPolicy.crashes_max. deferral_alarm_s: a deferred record unfinished for
    this long is reported. accept_replay: ignore commit metadata that cannot be trusted, and handle the records it
    covered again.
    """

    concurrency: int = 16
    running_bytes_max: int = 64 * _MIB
    records_max: int = 20_000
    bytes_max: int = 128 * _MIB
    poll_records_max: int = 1_000
    commit_interval_s: float = 0.2
    commit_records: int | None = None
    drain_s: float = 20.0
    rebalance_drain_s: float = 20.0
    stall_after_s: float = 30.0
    metadata_units_max: int = UNITS_MAX
    write_ahead_s: float = 5.0
    deferral_alarm_s: float = 60.0
    accept_replay: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if (value is not None and value < 0) or (value == 0 and field.type == "int"):
                raise InvalidConfig(f"{field.name} is {value}; it must be above 0")
        if not UNITS_MIN <= self.metadata_units_max <= UNITS_MAX:
            raise InvalidConfig(f"metadata_units_max is {self.metadata_units_max}; legal: {UNITS_MIN} to {UNITS_MAX}")
