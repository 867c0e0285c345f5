"""Series table: keeps labels by series id, and builds Arrow columns of them.

A worker has the labels of all series that a query may return as one block of bytes. Arrow columns, several times as
large, are built for the series of recent batches alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spark_backfill.source.columns import LABELS
from tsdb.model.labels import parse_labels

ABSENT = -1
ADDED_AT_ONCE = 65_536  # Labels that are joined before they are copied, some 10 MB.
BUILT_MAX = 8_192  # Series with columns: some 4 MB. A scan has the windows of a pack one after another.
Pairs = tuple[tuple[str, str], ...]


class ArrowLabels(Protocol):
    """Labels by series id, as Arrow columns."""

    def find(self, series_ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Row of each id, int64 (n,); ABSENT for an id that the table does not have."""

    def labels(self, of: pa.Field, rows: NDArray[np.int64]) -> pa.Array:
        """Column `of` for these rows: `labels`, a map of text, or one label as text, null where it is absent."""


class SeriesLabels:
    """Distinct series and their canonical labels."""

    def __init__(self, series_ids: NDArray[np.uint64], labels: Sequence[bytes]) -> None:
        """series_ids: uint64 (s,), distinct. labels: canonical labels of each, in the same order."""
        self._set(series_ids, np.arange(len(series_ids)), LabelText(labels))

    @classmethod
    def joined(cls, series_ids: NDArray[np.uint64], text: LabelText) -> SeriesLabels:
        """A table of ids that may repeat. text: the labels of each, in the same order, or empty for a table
        without labels."""
        made = cls.__new__(cls)
        made._set(*np.unique(series_ids, return_index=True), text)
        return made

    def _set(self, series_ids: NDArray[np.uint64], at: NDArray[np.int64], text: LabelText) -> None:
        order = np.argsort(series_ids, kind="stable")
        self.series_ids: NDArray[np.uint64] = series_ids[order]
        self._at = at[order].astype(np.uint32)  # Where `text` has the labels.
        self._text = text
        self._columns = LabelColumns(lambda rows: text.labels(self._at[rows]))

    def __len__(self) -> int:
        return len(self.series_ids)

    def find(self, series_ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Row of each id, int64 (n,); ABSENT for an id that the table does not have."""
        at = np.searchsorted(self.series_ids, series_ids)
        at[at == len(self)] = 0
        found = self.series_ids[at] == series_ids if len(self) else np.zeros(len(series_ids), np.bool_)
        return np.where(found, at, ABSENT)

    def labels(self, of: pa.Field, rows: NDArray[np.int64]) -> pa.Array:
        """Column `of` for these rows: `labels`, a map of text, or one label as text, null where it is absent."""
        return self._columns.take(of, rows, len(self))


class LabelText:
    """Canonical labels, one after another in one block of bytes: a Python object each takes twice the memory."""

    def __init__(self, labels: Sequence[bytes] = ()) -> None:
        self._text = bytearray()
        self._ends: list[NDArray[np.int64]] = []
        self._bounds: NDArray[np.int64] | None = None  # `_ends` as one array, after a 0; None after a change.
        self.add(labels)

    def add(self, labels: Sequence[bytes]) -> None:
        """Append labels. Their objects are not kept."""
        for first in range(0, len(labels), ADDED_AT_ONCE):
            some = labels[first : first + ADDED_AT_ONCE]
            self._append(b"".join(some), np.cumsum(np.fromiter(map(len, some), np.int64, len(some))))

    def join(self, other: LabelText) -> None:
        """Append the labels of another."""
        begin = len(self._text)
        self._text += other._text
        self._ends += [begin + ends for ends in other._ends]
        self._bounds = None

    def labels(self, at: NDArray[np.uint32]) -> list[bytes]:
        """The labels that were added as number `at`."""
        if self._bounds is None:
            self._bounds = np.concatenate([np.zeros(1, np.int64), *self._ends])
        spans = zip(self._bounds[at].tolist(), self._bounds[at + 1].tolist(), strict=True)
        return [bytes(self._text[start:end]) for start, end in spans]

    def _append(self, text: bytes, ends: NDArray[np.int64]) -> None:
        self._ends.append(len(self._text) + ends)
        self._text += text
        self._bounds = None


class LabelColumns:
    """Arrow columns of the series in recent batches. canonical: returns the canonical labels of rows of a table."""

    def __init__(self, canonical: Callable[[NDArray[np.int64]], list[bytes]]) -> None:
        self._canonical = canonical
        self._built: dict[tuple[str, pa.DataType], _Built] = {}

    @property
    def nbytes(self) -> int:
        """Memory of the columns."""
        return sum(built.array.nbytes + built.place.nbytes for built in self._built.values())

    def take(self, of: pa.Field, rows: NDArray[np.int64], size: int) -> pa.Array:
        """Column `of` for these rows of a table with `size` rows."""
        built = self._built.get((of.name, of.type))
        if built is None:
            built = self._built[of.name, of.type] = _Built(label_arrays(of, []), np.empty(0, np.int32))
        if len(built.place) < size:
            built.place = np.concatenate([built.place, np.full(size - len(built.place), ABSENT, np.int32)])
        at = built.place[rows]
        if (at == ABSENT).any():
            self._build(built, of, rows, at)
            at = built.place[rows]
        return built.array.take(pa.array(at))

    def _build(self, built: _Built, of: pa.Field, rows: NDArray[np.int64], at: NDArray[np.int32]) -> None:
        missing = _distinct(rows[at == ABSENT])
        if len(built.array) + len(missing) > BUILT_MAX:
            missing = _distinct(rows)
            built.place[:] = ABSENT
            built.array = label_arrays(of, [])
        more = label_arrays(of, self._canonical(missing))
        built.place[missing] = np.arange(len(built.array), len(built.array) + len(more), dtype=np.int32)
        built.array = pa.concat_arrays([built.array, more])


@dataclass(slots=True)
class _Built:
    """array: the column of the series built so far. place: int32 (rows,), index of each row of the table in `array`, or
    ABSENT."""

    array: pa.Array
    place: NDArray[np.int32]


def _distinct(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows without repeats, ascending. Most are equal to their neighbour; only the others are sorted."""
    changes = np.flatnonzero(np.diff(rows)) + 1
    return np.unique(rows[np.concatenate([np.zeros(1, np.int64), changes])])


def label_arrays(of: pa.Field, labels: Sequence[bytes]) -> pa.Array:
    """The column `of`, with one row for each of these canonical labels."""
    pairs = map(parse_labels, labels)
    return _maps(list(pairs), of.type) if of.name == LABELS else _texts(pairs, of.name)


def _maps(pairs: Sequence[Pairs], of: pa.DataType) -> pa.Array:
    starts = np.cumsum([0, *map(len, pairs)]).astype(np.int32)
    keys = pa.array([name for each in pairs for name, _ in each], pa.string())
    values = pa.array([value for each in pairs for _, value in each], pa.string())
    return pa.MapArray.from_arrays(pa.array(starts, pa.int32()), keys, values, type=of)


def _texts(pairs: Iterable[Pairs], name: str) -> pa.Array:
    return pa.array([dict(each).get(name) for each in pairs], pa.string())
