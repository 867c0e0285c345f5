"""Layout: names the columns of a file that have labels, time and value of a sample."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from tsdb.model.errors import InvalidRequest

PARQUET, CSV, JSONL, PROMETHEUS = "parquet", "csv", "jsonl", "prometheus"
FORMATS = (PARQUET, CSV, JSONL, PROMETHEUS)
UNITS = ("ms", "s", "us", "ns", "iso")
METRIC_NAME = "__name__"


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

    def fingerprint(self, files: Iterable[tuple[str, int, str]]) -> str:
        """Digest of this layout and of (path, bytes, time of change) of each file. Equal imports have equal digests."""
        text = json.dumps([asdict(self), sorted(files)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()
