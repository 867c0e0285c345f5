"""SampleRows: represents samples of a file of any format as columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.cli.terminal.errors import shown
from tsdb.client import WriteBatch
from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import canonical_labels
from tsdb.model.times import parse_time

SECONDS_FROM, SECONDS_TO = 10**9, 10**10  # 10 digits: `parse_time` treats these as seconds too.
MICROSECONDS_FROM = 10**15


@dataclass(frozen=True, slots=True)
class SampleRows:
    """Rows in the order of their file.

    labels: distinct canonical label sets. codes: int32 (n,), index into labels. ts_ms: int64 (n,), ms since epoch UTC.
    values: float64 (n,). details: start timestamps and histograms, None without any.
    """

    labels: Sequence[bytes]
    codes: NDArray[np.int32]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    details: SampleDetails | None = None

    def __len__(self) -> int:
        return len(self.ts_ms)

    def by_time(self) -> SampleRows:
        """The rows sorted by time. Rows with equal times keep their order."""
        if bool((self.ts_ms[1:] >= self.ts_ms[:-1]).all()):
            return self
        order = np.argsort(self.ts_ms, kind="stable")
        return self._taken(order)

    def _taken(self, rows: NDArray[np.int64]) -> SampleRows:
        details = None if self.details is None else self.details.take(rows)
        return SampleRows(self.labels, self.codes[rows], self.ts_ms[rows], self.values[rows], details)

    def refuse_other_units(self, name: str, samples_before: int) -> None:
        """Raises InvalidRequest (bad_time) for a time that looks like seconds, micro- or nanoseconds. As ms it would be
        in early 1970 or beyond the year 30,000.

        samples_before: number of samples of the file before these rows.
        """
        odd = ((self.ts_ms >= SECONDS_FROM) & (self.ts_ms < SECONDS_TO)) | (self.ts_ms >= MICROSECONDS_FROM)
        if odd.any():
            at = int(np.argmax(odd))
            try:
                parse_time(str(self.ts_ms[at]))
            except InvalidRequest as error:
                raise InvalidRequest(
                    f"{name}, sample {samples_before + at + 1}: {error.message}", reason=error.reason
                ) from None

    def at(self, ts_ms: NDArray[np.int64]) -> SampleRows:
        """The same samples with other times."""
        return replace(self, ts_ms=ts_ms)

    def batch(self, start: int, end: int) -> WriteBatch:
        """Rows [start, end), grouped by series; each series keeps the order of its rows."""
        codes = self.codes[start:end]
        order = np.argsort(codes, kind="stable")
        present, counts = np.unique(codes, return_counts=True)
        batch = WriteBatch()
        labels = [self.labels[code] for code in present.tolist()]
        rows = self._taken(start + order)
        batch.add_columns(labels, counts, rows.ts_ms, rows.values, details=rows.details)
        return batch


def join_rows(parts: Sequence[SampleRows]) -> SampleRows:
    """All rows, in order, over one list of labels."""
    if len(parts) == 1:
        return parts[0]
    table = LabelTable()
    codes = [table.codes_of(part.labels)[part.codes] for part in parts]
    return SampleRows(
        table.labels,
        np.concatenate([np.empty(0, np.int32), *codes]),
        np.concatenate([np.empty(0, np.int64), *(part.ts_ms for part in parts)]),
        np.concatenate([np.empty(0, np.float64), *(part.values for part in parts)]),
        joined_details([(len(part), part.details) for part in parts]),
    )


class LabelTable:
    """Numbers distinct label sets in order of their first use."""

    def __init__(self) -> None:
        self.labels: list[bytes] = []
        self._codes: dict[bytes, int] = {}

    def code(self, canonical: bytes) -> int:
        """The number of a label set; the next number for a new one."""
        code = self._codes.setdefault(canonical, len(self.labels))
        if code == len(self.labels):
            self.labels.append(canonical)
        return code

    def codes_of(self, labels: Sequence[bytes]) -> NDArray[np.int32]:
        """The numbers of several label sets."""
        return np.array([self.code(canonical) for canonical in labels], np.int32)


def parse_json(text: str) -> Any:
    """Parse strict JSON. Raises ValueError, also for duplicate keys and for bare NaN or Infinity, which Python
    accepts."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"key {next(key for key in keys if keys.count(key) > 1)!r} is given twice")
    return found


def _constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON: put it in quotes")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant)


def labels_of_json(text: str, place: str) -> bytes:
    """Canonical labels from JSON text such as {"__name__":"up"}. Raises InvalidRequest, which names `place`."""
    try:
        return labels_of_object(parse_json(text), place)
    except ValueError as error:
        raise InvalidRequest(
            f"{place}: labels are not JSON: {error}; got {shown(text)};"
            " --label LABEL=COLUMN takes a column for one label",
            reason="bad_input",
        ) from None


def labels_of_object(labels: Any, place: str) -> bytes:
    """Canonical labels from a parsed JSON object. Raises InvalidRequest, which names `place`."""
    if not isinstance(labels, dict) or not all(isinstance(value, str) for value in labels.values()):
        raise InvalidRequest(
            f"{place}: labels must be an object of strings; got {shown(json.dumps(labels))}", reason="bad_input"
        )
    try:
        return canonical_labels(labels)
    except InvalidRequest as error:
        raise InvalidRequest(f"{place}: {error.message}", reason=error.reason) from None
