"""One line of the Prometheus text exposition, or of OpenMetrics.

A regular expression without backtracking splits a line, so its time is linear in the line's length. prometheus_client
then parses the labels. Every brace in them is inside quotes, because its parser does not stop at a bare one.
prometheus_client's parsers of whole texts are not used: they rename counters by their TYPE, read the value of an
exemplar as a time, and can take minutes for one line. Series repeat from scrape to scrape, so the labels of a line are
parsed once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from prometheus_client.parser import parse_labels

from tsdb.cli.samples.dialect import Dialect
from tsdb.cli.terminal.errors import shown
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import canonical_labels

SERIES_REMEMBERED_MAX = 200_000  # Of one file or target: some 100 MB with twenty labels each.
LINE_BYTES_MAX = 64 << 10  # Eight times the gateway's limit of labels; the worst such line takes 70 ms.

# Possessive quantifiers (`*+`, `++`, `?+`) prevent backtracking.
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
    """One sample; ts_ms is None for a line without a time."""

    canonical: bytes
    ts_ms: int | None
    value: float


class ExpositionParser:
    """Parses lines. target: labels added to every series; a label of the line with the same name becomes exported_NAME.

    exemplars: number of lines so far with an exemplar. Their samples are kept, the exemplars are not.
    """

    def __init__(self, target: dict[str, str] | None = None) -> None:
        self._target = target or {}
        self._known: dict[tuple[str, str | None], bytes] = {}
        self.exemplars = 0

    def parse(self, line: str, place: str, dialect: Dialect = Dialect.TEXT) -> ExposedSample | None:
        """The sample of a line; None for a comment or an empty line. Raises InvalidRequest with the place."""
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
