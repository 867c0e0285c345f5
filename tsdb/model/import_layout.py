"""Layout: names the columns of a file that have labels, time and value of a sample. `tsdb write` and Spark's import
read files by it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass

from tsdb.model.errors import InvalidRequest

PARQUET, CSV, JSONL, PROMETHEUS = "parquet", "csv", "jsonl", "prometheus"
FORMATS = (PARQUET, CSV, JSONL, PROMETHEUS)
UNITS = ("ms", "s", "us", "ns", "iso")
METRIC_NAME = "__name__"
TIME_NAMES = ("ts_ms", "ts", "time", "timestamp", "datetime", "date", "_time")  # The first that is there.
VALUE_NAMES = ("value", "v", "val", "_value")  # A column with such a name does not name a metric.
_NO_METRIC = re.compile(r"[^a-zA-Z0-9_:]+")


@dataclass(frozen=True, slots=True)
class ImportLayout:
    """format: one of FORMATS; with PROMETHEUS all other fields are ignored.

    labels: a column with all labels, as JSON text, a map or a struct; empty: no such column. label_columns: (label,
    column) pairs, which replace labels in `labels`. constants: (label, value) pairs, which replace both. time: a column
    of timestamps, of numbers in time_unit, or of text: a number in time_unit, or ISO 8601 for "iso". value: a column of
    numbers. metrics: columns of numbers, used in place of `value`: each is a metric with the column's name, and a null
    is no sample. round_times: times finer than a millisecond are rounded down; else their rows are refused.
    """

    format: str
    labels: str = "labels"
    label_columns: tuple[tuple[str, str], ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    time: str = "ts_ms"
    time_unit: str = "ms"
    value: str = "value"
    metrics: tuple[str, ...] = ()
    round_times: bool = False

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise InvalidRequest(f"format is {self.format!r}; want {', '.join(FORMATS)}", reason="bad_layout")
        if self.time_unit not in UNITS:
            raise InvalidRequest(f"time unit is {self.time_unit!r}; want {', '.join(UNITS)}", reason="bad_layout")
        given = [label for label, _ in (*self.label_columns, *self.constants)]
        if len(set(given)) != len(given):
            raise InvalidRequest(f"a label is given twice: {', '.join(given)}", reason="bad_layout")
        if self.metrics and METRIC_NAME in given:
            raise InvalidRequest(f"metric columns name the metric; {METRIC_NAME} is given too", reason="bad_layout")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the file that the layout reads, each once."""
        values = self.metrics or (self.value,)
        named = (self.labels, *(column for _, column in self.label_columns), self.time, *values)
        return tuple(dict.fromkeys(filter(None, named)))

    def check(self, columns: Iterable[str]) -> None:
        """Raises InvalidRequest (bad_layout) when a file lacks a column that the layout reads."""
        there = list(columns)
        missing = [column for column in self.columns if column not in there]
        if missing:
            raise InvalidRequest(
                f"the files have no column {', '.join(missing)}; they have {', '.join(there[:20])}", reason="bad_layout"
            )

    @property
    def names_metrics(self) -> bool:
        """Whether columns or constants name the metric of each sample. A column `labels` may name it too."""
        return bool(self.metrics) or METRIC_NAME in [label for label, _ in (*self.label_columns, *self.constants)]

    def fingerprint(self, files: Iterable[tuple[str, int, str]]) -> str:
        """Digest of this layout and of (path, bytes, time of change) of each file. Equal imports have equal digests."""
        text = json.dumps([asdict(self), sorted(files)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Columns of a file as a caller names them; None and empty: not named. labels "": no column has all labels."""

    labels: str | None = None
    label_columns: tuple[tuple[str, str], ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    time: str | None = None
    time_unit: str | None = None
    value: str | None = None
    metrics: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are named."""
        named = (self.labels, *(column for _, column in self.label_columns), self.time, self.value, *self.metrics)
        return tuple(column for column in named if column)

    def layout(self, format: str, *, round_times: bool = False) -> ImportLayout:
        """The layout with the names labels, ts_ms and value for columns that are not named. Raises InvalidRequest
        (bad_layout)."""
        return ImportLayout(
            format,
            "labels" if self.labels is None else self.labels,
            self.label_columns,
            self.constants,
            self.time or "ts_ms",
            self.time_unit or "ms",
            self.value or "value",
            self.metrics,
            round_times,
        )

    def guessed(self, format: str, columns: Sequence[str], numbers: Collection[str]) -> ImportLayout | None:
        """The layout of a file, guessed where no column is named: the time by its name, numbers as values, others as
        labels. None without a time or a value. numbers: the columns whose values are all numbers."""
        time = self.time or _time_column(columns)
        labels = ("labels" if "labels" in columns else "") if self.labels is None else self.labels
        taken = {time, labels, self.value, *self.metrics, *(column for _, column in self.label_columns)}
        free = [column for column in columns if column not in taken]
        values = [self.value] if self.value else [column for column in free if column in numbers]
        if time is None or not (values or self.metrics):
            return None
        pairs = self.label_columns
        if self.labels is None and not pairs:
            texts = [column for column in free if column not in values]
            # `metric` is the column of the name in many exports.
            pairs = tuple((METRIC_NAME if column == "metric" else column, column) for column in texts)
        named = METRIC_NAME in [label for label, _ in (*pairs, *self.constants)]
        single = not self.metrics and len(values) == 1 and (self.value or named or values[0].lower() in VALUE_NAMES)
        return ImportLayout(
            format,
            labels,
            pairs,
            self.constants,
            time,
            self.time_unit or "ms",
            values[0] if single else "value",
            () if single else self.metrics or tuple(values),
        )


def _time_column(columns: Sequence[str]) -> str | None:
    by_name = {column.lower(): column for column in reversed(columns)}
    return next((by_name[name] for name in TIME_NAMES if name in by_name), None)


def label_columns(text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """(labels, label_columns) of a list such as "host,room": each of several columns gives the label of its name. One
    column alone has all labels."""
    names = [name.strip() for name in text.split(",")]
    if len(names) < 2:
        return text, ()
    return "", tuple((name, name) for name in names if name)


def metric_of(text: str) -> str:
    """A metric's name from that of a file or a column; "" when nothing is left of it."""
    name = _NO_METRIC.sub("_", text).strip("_")
    return f"_{name}" if name[:1].isdigit() else name
