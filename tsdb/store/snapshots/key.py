"""Snapshot key: what must be the same when a snapshot is taken and when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tsdb.head.state import HeadLimits
from tsdb.model.errors import ConfigMismatch, TsdbError, UnknownVersion, WrongTopic
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import SliceLengths
from tsdb.ops.process_metrics import package_version
from tsdb.store.snapshots.reasons import FOREIGN, SETTINGS, VERSION

COLUMNS_VERSION = 1  # docs/formats/columns.md
_IDENTITY = ("topic_id", "series_topic_id", "partition")
_VERSIONS = ("product", "columns")


@dataclass(frozen=True, slots=True)
class StoreKey:
    """The part of the key that all partitions of a store share. hold_ms, limits: settings of each head."""

    topic_id: str
    series_topic_id: str
    meta: MetaSettings
    slices: SliceLengths
    hold_ms: int
    limits: HeadLimits

    def of(self, partition: int) -> dict[str, Any]:
        """The key of one partition, flat, with values that JSON keeps."""
        meta = asdict(self.meta)
        meta["placement_labels"] = list(self.meta.placement_labels)
        return {
            "topic_id": self.topic_id,
            "series_topic_id": self.series_topic_id,
            "partition": partition,
            "product": package_version(),
            "columns": COLUMNS_VERSION,
            "meta": meta,
            "slices_ms": [self.slices.small_ms, self.slices.large_ms],
            "hold_ms": self.hold_ms,
            # More memory would hold more: a replay uses it at once.
            "memory_bytes": [self.limits.memory_soft_bytes, self.limits.memory_hard_bytes],
        }

    def check(self, partition: int, found: Mapping[str, Any]) -> None:
        """Raises a TsdbError with the reason and the differing value when another key was found."""
        for name, want in self.of(partition).items():
            got = found.get(name)
            if got != want:
                raise _error(name, f"{name} is {got!r} in the snapshot and {want!r} here")


def _error(name: str, message: str) -> TsdbError:
    if name in _IDENTITY:
        return WrongTopic(message, reason=FOREIGN)
    if name in _VERSIONS:
        return UnknownVersion(message, reason=VERSION)
    return ConfigMismatch(message, reason=SETTINGS)
