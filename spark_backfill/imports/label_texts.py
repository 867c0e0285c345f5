"""Label texts: what rows say of labels, as the series that they are. Once for each distinct text, never for a row."""

from __future__ import annotations

import json
from dataclasses import dataclass

from spark_backfill.imports.raw_rows import SEPARATOR
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import LabelLimits, canonical_labels, normalize_labels, series_id
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule

TEXTS_MAX = 500_000  # Kept; beyond it begun anew: what is forgotten is parsed again.


@dataclass(frozen=True, slots=True)
class Series:
    """Ids unsigned; canonical: labels."""

    series_id: int
    pack_id: int
    partition: int
    canonical: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """Labels that no series has. reason: a code."""

    reason: str


class LabelTexts:
    """Of one task."""

    def __init__(self, rule: PlacementRule, partitions: int, limits: LabelLimits | None = None) -> None:
        self._rule = rule
        self._partitions = partitions
        self._limits = limits or LabelLimits()
        self._known: dict[str, Series | Refused] = {}

    def series(self, text: str) -> Series | Refused:
        """The series of a text: JSON objects, parted by SEPARATOR, a later one over those before."""
        found = self._known.get(text)
        if found is None:
            if len(self._known) >= TEXTS_MAX:
                self._known.clear()
            found = self._known[text] = self._parsed(text)
        return found

    def _parsed(self, text: str) -> Series | Refused:
        labels: dict[str, str] = {}
        try:
            for part in filter(None, text.split(SEPARATOR)):
                labels |= _object(part)
        except (ValueError, RecursionError):
            return Refused("bad_labels")
        if not labels.get("__name__"):
            return Refused("no_metric_name")
        try:
            canonical = normalize_labels(canonical_labels(labels), self._limits)
        except InvalidRequest as error:
            return Refused(error.reason)
        place = self._rule.place(canonical)
        partition = partition_of(place.placement, self._partitions)
        return Series(series_id(canonical), place.pack_id, partition, canonical)


def _object(text: str) -> dict[str, str]:
    """A JSON object of strings; a label that is null is none. Raises ValueError."""
    value = json.loads(text, object_pairs_hook=_distinct)
    if not isinstance(value, dict):
        raise ValueError("no object")
    labels = {name: each for name, each in value.items() if each is not None}
    if not all(isinstance(each, str) for each in labels.values()):
        raise ValueError("a label that is no text")
    return labels


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a label twice")
    return made
