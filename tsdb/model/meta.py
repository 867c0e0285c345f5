"""Settings shared by all processes, stored in the `meta` topic. A process with other settings refuses to start."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from tsdb.model.placement import DEFAULT_PLACEMENT_LABELS, PACK_RULE_VERSION
from tsdb.model.time_set import PRODUCTION, TimeSet

PART_BYTES_MAX = 512 * 1024  # Largest part of a chunk: well below a broker's and Cassandra's message limits.


@dataclass(frozen=True, slots=True)
class MetaSettings:
    """Shared settings. Versions are of the formats in docs/formats."""

    partitions: int
    placement_labels: tuple[str, ...] = DEFAULT_PLACEMENT_LABELS
    pack_rule: int = PACK_RULE_VERSION
    log_record_version: int = 1
    series_record_version: int = 1
    chunk_version: int = 1
    part_bytes_max: int = PART_BYTES_MAX
    time_set: TimeSet = PRODUCTION


def differences(mine: MetaSettings, stored: MetaSettings) -> list[str]:
    """One line per differing setting: `time_set.window_ms: this process has 1, meta has 2`. Empty when equal."""
    lines: list[str] = []
    ours, theirs = _flat(asdict(mine)), _flat(asdict(stored))
    for key, value in ours.items():
        if theirs[key] != value:
            lines.append(f"{key}: this process has {value}, meta has {theirs[key]}")
    return lines


def _flat(values: dict[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": v for inner, v in value.items()})
        else:
            flat[key] = value
    return flat
