"""One line of the Prometheus text exposition, or of OpenMetrics.

One expression without backtracking finds the parts of a line, so its time grows with the line's length alone.
prometheus_client then parses the labels: a span in which each brace stands in quotes, because its parser never ends at
a bare one. Its parsers of whole texts are passed by: they rename counters by their TYPE, take the value of an exemplar
for a time, and one line can hold them for minutes. Series repeat from scrape to scrape, so the labels of a line are
parsed once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from prometheus_client.parser import parse_labels

from tsdb.cli.samples.dialect import Dialect
from tsdb.cli.samples.rows import shown
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import canonical_labels

SERIES_REMEMBERED_MAX = 200_000  # Of one file or target: some 100 MB where each has twenty labels.
LINE_BYTES_MAX = 64 << 10  # Eight times the labels that a gateway takes; the worst such line costs 70 ms.

# Possessive quantifiers (`*+`, `++`, `?+`): no part is tried a second time.
_QUOTED = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_LABELS = rf'\{{((?:[^"{{}}\\]++|{_QUOTED})*+)\}}'
_SPACE = r"[ \t]"
_LINE = re.compile(
    rf"\s*+([^\s{{}}#\"]*+){_SPACE}*+(?:{_LABELS})?+{_SPACE}*+"
    rf"([^\s{{}}#\"]++)(?:{_SPACE}++([^\s{{}}#\"]++))?+"
    rf"(?:{_SPACE}++(\#){_SPACE}*+{_LABELS}{_SPACE}*+[^\s{{}}#\"]++(?:{_SPACE}++[^\s{{}}#\"]++)?+)?+\s*+",
    re.DOTALL | re.ASCII,
)
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|inf(inity)?|nan)", re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True)
class ExposedSample:
    """One sample; ts_ms is None where the line names no time."""

    canonical: bytes
    ts_ms: int | None
    value: float


class ExpositionParser:
    """Parses lines. `target`: labels added to every series; those of the line by the same name become exported_...

    exemplars: lines so far that carried one. The sample of such a line is taken, its exemplar is not kept.
    """

    def __init__(self, target: dict[str, str] | None = None) -> None:
        self._target = target or {}
        self._known: dict[tuple[str, str | None], bytes] = {}
        self.exemplars = 0

    def parse(self, line: str, place: str, dialect: Dialect = Dialect.TEXT) -> ExposedSample | None:
        """The sample of a line, None for a comment or an empty one. Raises InvalidRequest naming the place."""
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            return None
        match = _LINE.fullmatch(line)
        if match is None:
            raise InvalidRequest(f"{place}: not a sample: {shown(stripped)}", reason="bad_input")
        name, labels, number, time, exemplar, _ = match.groups()
        key = (name, labels)
        canonical = self._known.get(key)
        if canonical is None:
            if len(self._known) >= SERIES_REMEMBERED_MAX:
                self._known.clear()
            canonical = self._known[key] = self._labels(name, labels, place)
        ts_ms = None if time is None else dialect.ts_ms(time, place)
        self.exemplars += exemplar is not None
        return ExposedSample(canonical, ts_ms, _number(number, place))

    def _labels(self, name: str, text: str | None, place: str) -> bytes:
        try:
            labels = parse_labels(text or "")
        except ValueError:
            raise InvalidRequest(
                f"{place}: not labels: {shown('{' + (text or '') + '}')}", reason="bad_input"
            ) from None
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
