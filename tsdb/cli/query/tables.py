"""Prints a result as tables with a line for each series. A summary of the result follows on stderr."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tsdb.cli.options.arguments import TimeRange, duration_text
from tsdb.cli.query.formats import Result
from tsdb.cli.terminal.output import note, print_table, value_text
from tsdb.cli.terminal.sparkline import WIDTH, sparkline
from tsdb.client import QueryResult
from tsdb.model.labels import format_series
from tsdb.model.times import time_text

Row = tuple[bytes, NDArray[np.int64], NDArray[np.float64]]
"""Labels, ts_ms and values of a series."""


def print_sample_table(result: Result, empty: TimeRange, rows_max: int) -> None:
    """Table by labels: number of samples, first, last, lowest and highest value, sparkline.

    empty: the range in the summary of a result without samples.

    """
    found = sorted(_series(result), key=lambda row: row[0])
    ts_ms = result.ts_ms
    span = TimeRange(int(ts_ms.min()), int(ts_ms.max()) + 1) if len(ts_ms) else empty
    _print_courses("samples", _shown(found, rows_max), span, WIDTH)
    _sum_up(found, rows_max, f", {len(ts_ms):,} samples, {time_text(span.start_ms)} to {time_text(span.end_ms)}")


def print_step_table(result: QueryResult, step_ms: int, rows_max: int) -> None:
    """In the order of the result, as print_sample_table. The sparkline shows all steps, with gaps."""
    found, times_ms = _series(result), result.times_ms
    first_ms, last_ms = int(times_ms[0]), int(times_ms[-1])
    # Fewer steps than bars would leave a gap beside each bar.
    _print_courses("points", _shown(found, rows_max), TimeRange(first_ms, last_ms + step_ms), min(WIDTH, len(times_ms)))
    size = f", {len(result.values):,} points, step {duration_text(step_ms)}"
    _sum_up(found, rows_max, f"{size}, {time_text(first_ms)} to {time_text(last_ms)}")


def print_value_table(result: QueryResult, rows_max: int) -> None:
    """In the order of the result, which sort() and topk() choose: the value of each series."""
    found = _series(result)
    rows = ((_name(canonical), value_text(float(values[0]))) for canonical, _, values in _shown(found, rows_max))
    print_table(("series", "value"), rows, right=("value",))
    _sum_up(found, rows_max, f" at {time_text(int(result.times_ms[0]))}")


def _series(result: Result) -> list[Row]:
    spans = [slice(*span) for span in pairwise(result.starts.tolist())]
    return [
        (canonical, result.ts_ms[span], result.values[span])
        for canonical, span in zip(result.canonical, spans, strict=True)
    ]


def _shown(found: Sequence[Row], rows_max: int) -> Sequence[Row]:
    return found[:rows_max] if rows_max else found


def _name(canonical: bytes) -> str:
    return format_series(canonical) or "{}"


def _print_courses(counted: str, shown: Iterable[Row], span: TimeRange, bars: int) -> None:
    numbers = (counted, "first", "last", "min", "max")
    print_table(("series", *numbers, "spark"), (_course(row, span, bars) for row in shown), right=numbers)


def _course(row: Row, span: TimeRange, bars: int) -> tuple[object, ...]:
    canonical, ts_ms, values = row
    known = values[~np.isnan(values)]
    least, greatest = (known.min(), known.max()) if len(known) else (np.nan, np.nan)
    numbers = (f"{float(value):.6g}" for value in (values[0], values[-1], least, greatest))
    return (_name(canonical), len(values), *numbers, sparkline(ts_ms, values, span.start_ms, span.end_ms, bars))


def _sum_up(found: Sequence[Row], rows_max: int, rest: str) -> None:
    hidden = len(found) - len(_shown(found, rows_max))
    note(f"{len(found):,} series{rest}" + (f"; {hidden:,} series not shown (--rows 0 shows all)" if hidden else ""))
