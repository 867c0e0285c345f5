"""Kept pairs: stores the newest reads whose answers differ, one JSON file each, for `tsdb shadow diff`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from tsdb.model.labels import SEPARATOR, parse_labels
from tsdb.query.shadow.capture import Captured
from tsdb.query.shadow.comparison import Differences

PATTERN = "shadow-*.json"
TEXT_CHARS_MAX = 2000


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of one read here and at the shadow."""

    own: float
    shadow: float


@dataclass(frozen=True, slots=True)
class Other:
    """The other side of a comparison. experiment: its name; empty: production."""

    address: str
    experiment: str


class KeptPairs:
    """The newest `kept_max` pairs in a folder. The threads of a shadow use it; a file is written completely or not at
    all."""

    def __init__(self, folder: Path, kept_max: int) -> None:
        self._folder = folder
        self._kept_max = kept_max
        folder.mkdir(parents=True, exist_ok=True)

    def keep(self, captured: Captured, found: Differences, times: Times, other: Other) -> None:
        """Write one file and remove the oldest. Raises OSError."""
        name = f"shadow-{captured.at_ms:015d}-{id(captured):016x}.json"
        part = self._folder / f".{name}.part"
        part.write_text(json.dumps(_pair(captured, found, times, other)))
        part.rename(self._folder / name)
        for old in kept_files(self._folder)[: -self._kept_max]:
            old.unlink(missing_ok=True)


def kept_files(folder: Path) -> Sequence[Path]:
    """The files of a folder, the oldest first."""
    return sorted(folder.glob(PATTERN))


def _pair(captured: Captured, found: Differences, times: Times, other: Other) -> dict[str, Any]:
    return {
        "at_ms": captured.at_ms,
        "shadow": other.address,
        "experiment": other.experiment,
        "method": captured.method.value,
        "request": json.dumps(MessageToDict(captured.request))[:TEXT_CHARS_MAX],
        "own_s": round(times.own, 6),
        "shadow_s": round(times.shadow, 6),
        "differences": found.counts,
        "coverage": found.coverage,
        "series": [
            {
                "labels": _labels(one.key),
                "kind": one.kind,
                "rows": [[ts_ms, _shown(own), _shown(shadow)] for ts_ms, own, shadow in one.rows],
            }
            for one in found.shown
        ],
    }


def _labels(key: bytes) -> dict[str, str]:
    return dict(parse_labels(key)) if SEPARATOR in key else {"series_id": key.decode()} if key else {}


def _shown(value: float | None) -> str | None:
    """A value as text: JSON has no NaN, and repr keeps every bit of other values."""
    return None if value is None else repr(value)
