"""One line of the Prometheus text exposition.

prometheus_client parses the labels. Its parser of whole texts is passed by: it renames counters by their TYPE, and what
was written must come back. Series repeat from scrape to scrape, so the labels of a line are parsed once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from prometheus_client.parser import parse_labels

from tsdb.cli.samples.rows import shown
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import canonical_labels

SERIES_REMEMBERED_MAX = 1_000_000

# A label's value may hold any character, but after the last brace come numbers only.
_LINE = re.compile(r"\s*([^\s{}]*)\s*(?:\{(.*)\})?\s+(\S+)(?:\s+(-?\d{1,18}))?\s*", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?|nan)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ExposedSample:
    """One sample; ts_ms is None where the line names no time."""

    canonical: bytes
    ts_ms: int | None
    value: float


class ExpositionParser:
    """Parses lines. `target`: labels added to every series; those of the line by the same name become exported_..."""

    def __init__(self, target: dict[str, str] | None = None) -> None:
        self._target = target or {}
        self._known: dict[tuple[str, str | None], bytes] = {}

    def parse(self, line: str, place: str) -> ExposedSample | None:
        """The sample of a line, None for a comment or an empty one. Raises InvalidRequest naming the place."""
        if not line.strip() or line.lstrip().startswith("#"):
            return None
        match = _LINE.fullmatch(line)
        if match is None:
            raise InvalidRequest(f"{place}: not a sample: {shown(line.strip())}", reason="bad_input")
        name, labels, number, time = match.groups()
        key = (name, labels)
        canonical = self._known.get(key)
        if canonical is None:
            if len(self._known) >= SERIES_REMEMBERED_MAX:
                self._known.clear()
            canonical = self._known[key] = self._labels(name, labels, place)
        return ExposedSample(canonical, None if time is None else int(time), _number(number, place))

    def _labels(self, name: str, text: str | None, place: str) -> bytes:
        try:
            labels = parse_labels(text or "")
        except ValueError as error:
            raise InvalidRequest(f"{place}: {error}", reason="bad_input") from None
        if name and "__name__" in labels:
            raise InvalidRequest(f"{place}: the metric has two names", reason="bad_input")
        if name:
            labels["__name__"] = name
        if not labels.get("__name__"):
            raise InvalidRequest(f"{place}: no metric name", reason="bad_input")
        for label, value in self._target.items():
            if label in labels:
                labels[f"exported_{label}"] = labels[label]
            labels[label] = value
        # An empty value means that the label is absent.
        return canonical_labels({label: value for label, value in labels.items() if value})


def _number(text: str, place: str) -> float:
    if not _NUMBER.fullmatch(text):
        raise InvalidRequest(f"{place}: not a number: {shown(text)}", reason="bad_input")
    return float(text)
