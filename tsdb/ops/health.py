"""What the probes ask: whether a process can serve (readiness, per partition) and whether it still moves (liveness)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """One partition as `/-/ready` shows it. `reason` is empty when ready; `details`: lag, offsets, progress."""

    ready: bool
    reason: str = ""
    details: Mapping[str, int | float | str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Readiness:
    """A process is ready when nothing of its own stands in the way and all its partitions are ready.

    `reason` says what of the process itself is not ready (starting, draining, log_unavailable, disk_full); empty when
    nothing. `message`: the same for a person.
    """

    reason: str = ""
    partitions: Mapping[int, PartitionHealth] = field(default_factory=dict)
    message: str = ""

    @property
    def ready(self) -> bool:
        return not self.reason and all(partition.ready for partition in self.partitions.values())


@dataclass(frozen=True, slots=True)
class Liveness:
    """Alive means progress, or nothing to do. Lag is never a reason: a restart would only add to it."""

    alive: bool = True
    reason: str = ""
