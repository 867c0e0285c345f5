"""Label sets of a vector's series as a table of numbers, so that grouping and matching are array operations.

A pool numbers the names and values of one query. Number 0 is the empty text, which is an absent label.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tsdb.model.arrays import splitmix64
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.vectors.label_kernels import SEPARATOR, number_texts_kernel

METRIC_NAME = "__name__"
METADATA = (METRIC_NAME, "__type__", "__unit__")  # Labels of the metric itself. A computation drops them together.

CHARS_MAX = 64 << 20  # Characters of all texts of a query.
CELLS_MAX = 50_000_000  # Cells of one table of label sets: 200 MB.

SMALL_CELLS = 256  # Few rows are grouped in Python in 3 us and ordered in 10; array operations take 40 and 70.
SPARSE = 64  # Bound of distinct numbers in relation to rows; see `distinct`.

# Small selections are remembered, 512 of them: some 80 MB at worst, where all texts are short and different. A name
# takes bytes, so the product of series and bytes bounds the cells of a table.
REMEMBERED_BYTES_MAX, REMEMBERED_PRODUCT_MAX = 4 << 10, 64 << 10

_SEED = np.uint64(secrets.randbits(64))  # Random, so that nobody can choose labels that share a hash.


class Pool:
    """Texts by number, and the bounds on what labels of a query take. Used by one query, on one thread."""

    def __init__(self, chars_max: int = CHARS_MAX, cells_max: int = CELLS_MAX) -> None:
        self._numbers: dict[str, int] = {"": 0}
        self._texts = [""]
        self._chars = 0
        self._chars_max = chars_max
        self._cells_max = cells_max

    def number(self, text: str) -> int:
        """The number of a text, new if it is. Raises EvaluationError when all texts together are too long."""
        return self.numbers((text,))[0]

    def numbers(self, texts: Iterable[str]) -> list[int]:
        """The number of each text. Raises as `number`."""
        known, of_number, found = self._numbers, self._texts, []
        count = len(of_number)
        for text in texts:
            number = known.setdefault(text, count)
            found.append(number)
            if number < count:
                continue
            of_number.append(text)
            count += 1
            self._chars += len(text)
            if self._chars > self._chars_max:
                raise EvaluationError(
                    "the labels of this query are too long: ask for fewer series, or for less of label_join and "
                    "label_replace",
                    reason="labels_too_long",
                )
        return found

    def admit(self, rows: int, names: int) -> None:
        """Raise EvaluationError for label sets that are too many."""
        if rows * names > self._cells_max:
            raise EvaluationError(
                f"{rows} series have {names} names of labels between them; the limit is {self._cells_max} pairs of "
                "series and name, ask for fewer series",
                reason="labels_too_many",
            )

    def text(self, number: int) -> str:
        """The text of a number."""
        return self._texts[number]

    def texts(self, numbers: Iterable[int]) -> list[str]:
        """The text of each number."""
        return list(map(self._texts.__getitem__, numbers))

    def all_texts(self) -> Sequence[str]:
        """The texts of all numbers, from 0 on."""
        return self._texts

    def take_over(self, other: Pool) -> bool:
        """Number the texts as `other` does. False when this pool has texts already, or too little capacity."""
        if len(self._texts) > 1 or other._chars > self._chars_max:
            return False
        self._numbers, self._texts, self._chars = other._numbers.copy(), other._texts.copy(), other._chars
        return True


@dataclass(frozen=True, slots=True)
class LabelGroups:
    """Groups of rows. of_row: int64 (rows,), the group of each row. first: int64 (groups,), the first row of each
    group, ascending."""

    of_row: NDArray[np.int64]
    first: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.first)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where each group begins among rows that are ordered by group, and their end, int64 (groups + 1,)."""
        return group_starts(self.of_row, len(self))


@dataclass(frozen=True, slots=True)
class LabelSets:
    """numbers: int32 (rows, names), of the values; 0 where a row lacks the label. is_distinct: no two rows are known to
    be equal, so that nothing needs to look for them; False: not known."""

    pool: Pool
    names: tuple[str, ...]
    numbers: NDArray[np.int32]
    is_distinct: bool = False

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: NDArray[np.int64]) -> LabelSets:
        """The rows with these indexes."""
        return LabelSets(self.pool, self.names, self.numbers[rows])

    def subset(self, rows: NDArray[np.int64]) -> LabelSets:
        """The rows with these indexes, of which none comes twice."""
        return LabelSets(self.pool, self.names, self.numbers[rows], self.is_distinct)

    def first_of(self, groups: LabelGroups) -> LabelSets:
        """The first row of each of these groups, which are those of `groups`."""
        return LabelSets(self.pool, self.names, self.numbers[groups.first], is_distinct=True)

    def only(self, names: Collection[str]) -> LabelSets:
        """The label sets with only these names."""
        return self._columns([name in names for name in self.names])

    def without(self, names: Collection[str]) -> LabelSets:
        """The label sets without these names."""
        return self._columns([name not in names for name in self.names])

    def _columns(self, kept: Sequence[bool]) -> LabelSets:
        if all(kept):
            return self
        columns = [index for index, keeps in enumerate(kept) if keeps]
        # Rows stay distinct without a label that is equal in all of them, such as the name of one metric.
        is_distinct = self.is_distinct and all(
            keeps or is_constant(self.numbers[:, index]) for index, keeps in enumerate(kept)
        )
        return LabelSets(
            self.pool, tuple(self.names[index] for index in columns), self.numbers[:, columns], is_distinct
        )

    def column(self, name: str) -> NDArray[np.int32]:
        """Numbers of one label's values, int32 (rows,)."""
        if name not in self.names:
            return np.zeros(len(self), np.int32)
        column: NDArray[np.int32] = self.numbers[:, self.names.index(name)]
        return column

    def with_column(self, name: str, numbers: NDArray[np.int32]) -> LabelSets:
        """A label set or replaced; number 0 removes it."""
        rest = self.without((name,))
        table = np.empty((len(self), len(rest.names) + 1), np.int32)
        table[:, :-1], table[:, -1] = rest.numbers, numbers
        return LabelSets(self.pool, (*rest.names, name), table)

    def texts(self, name: str) -> list[str]:
        """Values of one label, "" where it is absent."""
        return self.pool.texts(self.column(name).tolist())

    def row(self, row: int) -> dict[str, str]:
        """The labels of one row, by name."""
        values = self.numbers[row].tolist()
        found = {name: self.pool.text(value) for name, value in zip(self.names, values, strict=True) if value}
        return dict(sorted(found.items()))

    def groups(self) -> LabelGroups:
        """Groups of rows with the same labels."""
        if self.is_distinct or len(self) <= 1:
            rows = np.arange(len(self))
            return LabelGroups(rows, rows)
        if not self.names:
            return LabelGroups(np.zeros(len(self), np.int64), np.zeros(1, np.int64))
        if self.numbers.size <= SMALL_CELLS:
            return _few_groups(self.numbers)
        hashes = self._hashes()
        groups = _groups_of(hashes)
        # Two different label sets have the same hash.
        if not (self.numbers == self.numbers[groups.first[groups.of_row]]).all():
            groups = _groups_of(np.unique(self.numbers, axis=0, return_inverse=True)[1].reshape(-1))
        return groups

    def order(self) -> NDArray[np.int64]:
        """Order of rows as in Prometheus: label by label, in the order of names; each name is compared before its
        value."""
        if len(self) <= 1:
            return np.arange(len(self))
        if self.numbers.size <= SMALL_CELLS:
            return self._few_ordered()
        keys: list[NDArray[np.int64]] = []
        ends = np.ones(len(self), np.bool_)  # Whether a row has no further label.
        for index in sorted(range(len(self.names)), key=lambda at: self.names[at], reverse=True):
            column = self.numbers[:, index]
            found, places = distinct(column)
            texts = self.pool.texts(found)
            ranks = np.empty(len(texts), np.int64)
            ranks[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(1, len(texts) + 1)
            # A row that lacks the label has either a later name there, which is larger, or has ended, which is smaller.
            keys.append(np.where(column != 0, ranks[places], np.where(ends, 0, len(texts) + 1)))
            ends &= column == 0
        return np.lexsort(keys) if keys else np.arange(len(self))

    def _few_ordered(self) -> NDArray[np.int64]:
        """The order of few rows: a row that ends is before one that goes on, as with Python's lists."""
        columns = sorted(range(len(self.names)), key=self.names.__getitem__)
        names, text = self.names, self.pool.text
        rows = [
            [(names[column], text(row[column])) for column in columns if row[column]] for row in self.numbers.tolist()
        ]
        return np.array(sorted(range(len(rows)), key=rows.__getitem__), np.int64)

    def _hashes(self) -> NDArray[np.uint64]:
        """A hash of each row, which depends neither on the order of the columns nor on absent labels."""
        total = np.zeros(len(self), np.uint64)
        for index, name in enumerate(self.names):
            values = self.numbers[:, index].astype(np.uint64)
            mixed = splitmix64(values | (np.uint64(self.pool.number(name)) << np.uint64(32)))
            mixed[values == 0] = 0
            total += mixed
        return total


def distinct(numbers: NDArray[np.int32] | NDArray[np.int64]) -> tuple[list[int], NDArray[np.int64]]:
    """(the distinct numbers in ascending order, the index of each of `numbers` among them). numbers: not negative."""
    end = int(numbers.max(initial=0)) + 1
    if end > SPARSE * len(numbers) + SPARSE:
        found, places = np.unique(numbers, return_inverse=True)
        return found.tolist(), places.reshape(-1)
    # Marks take a third of the time of a sort while the numbers are not far more than the rows.
    marks = np.zeros(end, np.bool_)
    marks[numbers] = True
    index = np.cumsum(marks) - 1
    return np.flatnonzero(marks).tolist(), index[numbers]


def are_distinct(groups: NDArray[np.int64]) -> bool:
    """Whether no group comes twice."""
    return len(groups) < 2 or int(np.bincount(groups).max()) == 1


def is_constant(values: NDArray[np.int32]) -> bool:
    """Whether all values are the same."""
    return bool((values == values[:1]).all())


def group_starts(of_row: NDArray[np.int64], groups: int) -> NDArray[np.int64]:
    """Computes LabelGroups.starts for rows in groups some of which may have no rows."""
    starts = np.zeros(groups + 1, np.int64)
    np.bincount(of_row, minlength=groups).cumsum(out=starts[1:])
    return starts


def no_labels(pool: Pool, rows: int) -> LabelSets:
    """Label sets for rows without any label."""
    return LabelSets(pool, (), np.zeros((rows, 0), np.int32))


class SharedLabels(list[bytes]):
    """Canonical labels of a selection that several queries use, on one thread. The first of them parses the labels."""

    __slots__ = ("_sets",)

    def __init__(self, canonical: Sequence[bytes]) -> None:
        super().__init__(canonical)
        self._sets: LabelSets | None = None

    def label_sets(self) -> LabelSets:
        """Label sets with a pool that has their values alone. Raises EvaluationError."""
        if self._sets is None:
            self._sets = _parsed(Pool(), self)
        return self._sets


def parsed(pool: Pool, canonical: Sequence[bytes]) -> LabelSets:
    """Parse canonical labels to label sets. Those of a small selection are remembered by their bytes."""
    if isinstance(canonical, SharedLabels):
        return _of_pool(pool, canonical.label_sets())
    if len(canonical) > REMEMBERED_BYTES_MAX:  # Nothing goes through the labels of many series for this alone.
        return _parsed(pool, canonical)
    size = sum(map(len, canonical))
    if size > REMEMBERED_BYTES_MAX or size * len(canonical) > REMEMBERED_PRODUCT_MAX:
        return _parsed(pool, canonical)
    return _of_pool(pool, _remembered(tuple(canonical)))


def _of_pool(pool: Pool, known: LabelSets) -> LabelSets:
    pool.admit(len(known), len(known.names))
    if pool.take_over(known.pool):
        return LabelSets(pool, known.names, known.numbers, known.is_distinct)
    of_pool = np.array(pool.numbers(known.pool.all_texts()), np.int32)
    return LabelSets(pool, known.names, of_pool[known.numbers], known.is_distinct)


@lru_cache(maxsize=512)
def _remembered(canonical: tuple[bytes, ...]) -> LabelSets:
    """Label sets with a pool that has their values alone."""
    # The bound on the cells is that of each query's pool; this table has few.
    return _parsed(Pool(), canonical)


def _parsed(pool: Pool, canonical: Sequence[bytes]) -> LabelSets:
    """Python sees each distinct text once."""
    data = np.frombuffer(b"".join(canonical), np.uint8)
    ends = np.cumsum(np.fromiter(map(len, canonical), np.int64, len(canonical)))
    texts_max = int(np.count_nonzero(data == SEPARATOR)) + len(canonical)
    slots = np.full(1 << (2 * texts_max).bit_length(), -1, np.int32)
    texts, numbers = np.empty((texts_max, 2), np.int64), np.empty(texts_max, np.int32)
    counts = np.empty(len(canonical), np.int64)
    distinct = number_texts_kernel(data, ends, _SEED, slots, texts, numbers, counts)
    pairs = numbers[: counts.sum()].reshape(-1, 2)
    rows = np.repeat(np.arange(len(canonical)), counts // 2)
    raw = data.tobytes()
    shown = [raw[start:end].decode(errors="surrogateescape") for start, end in texts[:distinct].tolist()]
    names = np.flatnonzero(np.bincount(pairs[:, 0], minlength=distinct)).tolist()
    names.sort(key=shown.__getitem__)
    column, value = np.empty(distinct, np.int64), np.zeros(distinct, np.int32)
    column[names] = np.arange(len(names))
    wanted = np.flatnonzero(np.bincount(pairs[:, 1], minlength=distinct)).tolist()
    value[wanted] = of_pool = pool.numbers(map(shown.__getitem__, wanted))
    pool.admit(len(canonical), len(names))
    table = np.zeros((len(canonical), len(names)), np.int32)
    table[rows, column[pairs[:, 0]]] = value[pairs[:, 1]]
    # Each series comes once. If one came twice, or with an empty value, the evaluation would find equal labels.
    is_distinct = len(set(canonical)) == len(canonical) and 0 not in of_pool
    return LabelSets(pool, tuple(map(shown.__getitem__, names)), table, is_distinct)


def label_sets(pool: Pool, rows: Sequence[dict[str, str]]) -> LabelSets:
    """Label sets by name and value; an empty value is an absent label."""
    names = tuple(sorted({name for row in rows for name in row}))
    numbers = [[pool.number(row.get(name, "")) for name in names] for row in rows]
    return LabelSets(pool, names, np.array(numbers, np.int32).reshape(len(rows), len(names)))


def joined(first: LabelSets, second: LabelSets) -> LabelSets:
    """The rows of the first table, followed by the rows of the second."""
    names = tuple(dict.fromkeys((*first.names, *second.names)))
    first.pool.admit(len(first) + len(second), len(names))
    numbers = np.zeros((len(first) + len(second), len(names)), np.int32)
    for sets, rows in ((first, numbers[: len(first)]), (second, numbers[len(first) :])):
        for index, name in enumerate(sets.names):
            rows[:, names.index(name)] = sets.numbers[:, index]
    return LabelSets(first.pool, names, numbers)


def _few_groups(numbers: NDArray[np.int32]) -> LabelGroups:
    groups: dict[tuple[int, ...], int] = {}
    of_row: list[int] = []
    first: list[int] = []
    for index, row in enumerate(map(tuple, numbers.tolist())):
        group = groups.setdefault(row, len(first))
        if group == len(first):
            first.append(index)
        of_row.append(group)
    return LabelGroups(np.array(of_row, np.int64), np.array(first, np.int64))


def _groups_of(keys: NDArray[np.uint64] | NDArray[np.int64]) -> LabelGroups:
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return LabelGroups(place[inverse], first[order])
