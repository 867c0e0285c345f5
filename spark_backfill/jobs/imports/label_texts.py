"""Label texts: parse the label text of rows into series, once for each distinct text and not for each row."""

from __future__ import annotations

import json
from dataclasses import dataclass

from spark_backfill.jobs.imports.raw_rows import SEPARATOR
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import LabelLimits, canonical_labels, normalize_labels, series_id
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule

TEXTS_MAX = 500_000  # Cached texts. A full cache is cleared; its texts are parsed again when they come.


@dataclass(frozen=True, slots=True)
class PlacedSeries:
    """A series with its pack and partition. Ids are unsigned. canonical: canonical labels."""

    series_id: int
    pack_id: int
    partition: int
    canonical: bytes


@dataclass(frozen=True, slots=True)
class Refused:
    """Labels that are not valid for a series. reason: an error code."""

    reason: str


class LabelTexts:
    def __init__(self, rule: PlacementRule, partitions: int, limits: LabelLimits | None = None) -> None:
        self._rule = rule
        self._partitions = partitions
        self._limits = limits or LabelLimits()
        self._known: dict[str, PlacedSeries | Refused] = {}

    def series(self, text: str) -> PlacedSeries | Refused:
        """The series of a text: JSON objects joined by SEPARATOR. Labels of a later object replace earlier ones."""
        found = self._known.get(text)
        if found is None:
            if len(self._known) >= TEXTS_MAX:
                self._known.clear()
            found = self._known[text] = self._parsed(text)
        return found

    def _parsed(self, text: str) -> PlacedSeries | Refused:
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
        return PlacedSeries(series_id(canonical), place.pack_id, partition, canonical)


def _object(text: str) -> dict[str, str]:
    """Labels of a JSON object of strings; a null value means no label. Raises ValueError."""
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
