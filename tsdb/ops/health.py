"""Results of the probes: readiness (can the process serve, by partition) and liveness (does it still progress)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Details = Mapping[str, int | float | str | None]


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """One partition as `/-/ready` shows it. `reason` is empty when ready; `details`: lag, offsets, progress."""

    ready: bool
    reason: str = ""
    details: Details = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Readiness:
    """A process is ready when `reason` is empty and all its partitions are ready.

    `reason`: obstacle of the process itself (starting, draining, log_unavailable, disk_full). `message`: details of the
    reason for an operator. `jobs`: scheduled jobs by kind; they never make a process unready.
    """

    reason: str = ""
    partitions: Mapping[int, PartitionHealth] = field(default_factory=dict)
    message: str = ""
    jobs: Mapping[str, Details] = field(default_factory=dict)

    @property
    def ready(self) -> bool:
        return not self.reason and all(partition.ready for partition in self.partitions.values())


@dataclass(frozen=True, slots=True)
class Liveness:
    """Alive means progress, or nothing to do. Lag never makes a process dead: a restart would only increase the lag."""

    alive: bool = True
    reason: str = ""
