"""Block: the values of an instant vector at every step of a query. Other types of results are here too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.native.histograms import HistogramCells, joined_natives
from tsdb.promql.evaluate.vectors.labels import METADATA, LabelSets, joined

SAME_LABELS = "vector cannot contain metrics with the same labelset"


@dataclass(frozen=True, slots=True)
class Block:
    """values: float64 (series, steps). present: bool (series, steps); NaN is a value, absence is not.

    A value that is not present has no meaning. loses_name: bool (series,), whether the name is removed at the end of
    the query; all False unless names are removed late. native: the cells that are histograms and not floats; None
    in a block of floats, which pays nothing for them. The value of such a cell has no meaning.
    """

    labels: LabelSets
    values: NDArray[np.float64]
    present: NDArray[np.bool_]
    loses_name: NDArray[np.bool_]
    native: HistogramCells | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def steps(self) -> int:
        """Number of steps, at least 1."""
        return int(self.values.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of values and labels."""
        native = 0 if self.native is None else self.native.nbytes
        return self.values.nbytes + self.present.nbytes + self.labels.numbers.nbytes + native

    @property
    def is_histogram(self) -> NDArray[np.bool_]:
        """Whether a cell is present and a histogram, bool (series, steps)."""
        return np.zeros_like(self.present) if self.native is None else self.present & (self.native.of >= 0)

    def take(self, rows: NDArray[np.int64]) -> Block:
        """The series with these indexes."""
        return self._of_rows(self.labels.take(rows), rows)

    def subset(self, rows: NDArray[np.int64]) -> Block:
        """The series with these indexes, of which none comes twice."""
        return self._of_rows(self.labels.subset(rows), rows)

    def _of_rows(self, labels: LabelSets, rows: NDArray[np.int64]) -> Block:
        native = self.native and replace(self.native, of=self.native.of[rows])
        return Block(labels, self.values[rows], self.present[rows], self.loses_name[rows], native)

    def with_values(self, values: NDArray[np.float64]) -> Block:
        """The same series and presence with other values, all of them floats."""
        return Block(self.labels, values, self.present, self.loses_name)

    def with_native(self, native: HistogramCells) -> Block:
        """The same series and presence, with these histograms."""
        return replace(self, native=native)

    def with_present(self, present: NDArray[np.bool_]) -> Block:
        """The same series and values with another presence, without series that are nowhere present."""
        return Block(self.labels, self.values, present, self.loses_name, self.native).compact()

    def floats(self) -> Block:
        """The block without its histograms, and without the series that have only these."""
        if self.native is None:
            return self
        return replace(self, present=self.present & ~self.is_histogram, native=None).compact()

    def compact(self) -> Block:
        """The block without series that are present at no step."""
        if self.present.all() or (rows := self.present.any(axis=1)).all():
            return self
        return self.subset(np.flatnonzero(rows))

    def without_name(self) -> Block:
        """The block without the names of metrics. Raises EvaluationError."""
        labels = self.labels.without(METADATA)
        return Block(labels, self.values, self.present, self.loses_name, self.native).merged()

    def at_end(self) -> Block:
        """The block without the names that are marked. Raises EvaluationError when labels are equal then."""
        if not self.loses_name.any():
            return self.merged()
        labels = _without_marked(self.labels, self.loses_name)
        return replace(self, labels=labels, loses_name=np.zeros(len(self), np.bool_)).merged()

    def merged(self) -> Block:
        """Merge series of equal labels. Raises EvaluationError when two of them are present at one step."""
        if self.labels.is_distinct:
            return self
        groups = self.labels.groups()
        if len(groups) == len(self):
            return self
        counts = counted(self.present, groups.of_row, len(groups))
        if counts.max() > 1:
            raise EvaluationError(SAME_LABELS)
        values = np.zeros(counts.shape)
        rows, steps = np.nonzero(self.present)
        values[groups.of_row[rows], steps] = self.values[rows, steps]
        native = self.native
        if native is not None:
            of = np.full(counts.shape, -1, np.int64)
            of[groups.of_row[rows], steps] = native.of[rows, steps]
            native = replace(native, of=of)
        return Block(self.labels.first_of(groups), values, counts > 0, self.loses_name[groups.first], native)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number at each step. values: float64 (steps,)."""

    values: NDArray[np.float64]

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return self.values.nbytes


@dataclass(frozen=True, slots=True)
class Text:
    """A string, the same at every step."""

    value: str

    @property
    def nbytes(self) -> int:
        """Bytes of its characters. The text is part of the query's text."""
        return len(self.value)


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of series as rows. Row i has the samples [starts[i], starts[i + 1]), ascending in time, without stale
    markers.

    starts: int64 (rows + 1,). ts_ms: int64. values: float64. native: the samples that are histograms, as in Block.
    start_ms: int64, the start timestamp of each sample, 0 for none; None where functions have no use for them.
    """

    labels: LabelSets
    starts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    loses_name: NDArray[np.bool_]
    native: HistogramCells | None = None
    start_ms: NDArray[np.int64] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of samples and labels."""
        details = sum(part.nbytes for part in (self.native, self.start_ms) if part is not None)
        return self.values.nbytes + self.ts_ms.nbytes + self.labels.numbers.nbytes + details

    def at_end(self) -> Samples:
        """Samples without the names that are marked."""
        return replace(self, labels=_without_marked(self.labels, self.loses_name))


def stacked(blocks: Sequence[Block]) -> Block:
    """The series of all blocks, one block after another. There is at least one block, and all have the same steps."""
    labels = blocks[0].labels
    for block in blocks[1:]:
        labels = joined(labels, block.labels)
    return Block(
        labels,
        np.concatenate([block.values for block in blocks]),
        np.concatenate([block.present for block in blocks]),
        np.concatenate([block.loses_name for block in blocks]),
        _stacked_cells(blocks),
    )


def _stacked_cells(blocks: Sequence[Block]) -> HistogramCells | None:
    natives = [block.native for block in blocks if block.native is not None]
    if not natives:
        return None
    parts: list[NDArray[np.int64]] = []
    first = 0  # Index of the first histogram of a block among all.
    for block in blocks:
        if block.native is None:
            parts.append(np.full(block.values.shape, -1, np.int64))
            continue
        parts.append(np.where(block.native.of < 0, -1, block.native.of + first))
        first += len(block.native.histograms)
    return HistogramCells(joined_natives([native.histograms for native in natives]), np.concatenate(parts))


def counted(present: NDArray[np.bool_], of_row: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """Number of present series in each group at each step, int64 (groups, steps). of_row: the group of each row."""
    counts = np.zeros((groups, present.shape[1]), np.int64)
    np.add.at(counts, of_row, present)
    return counts


def _without_marked(labels: LabelSets, loses_name: NDArray[np.bool_]) -> LabelSets:
    for name in set(METADATA) & set(labels.names):
        labels = labels.with_column(name, np.where(loses_name, 0, labels.column(name)).astype(np.int32))
    return labels
