"""Writes a result as JSON, CSV or Parquet.

OutputTarget is the file or standard output that gets the result of a query, with the format of the result.

Prints a result as tables with a line for each series. A summary of the result follows on stderr.

Sparklines draw the values of a series over time in a few characters.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from tsdb.cli.options.arguments import TimeRange, duration_text
from tsdb.cli.query.histogram_output import QUANTILE_NAMES, ResultHistograms, has_histograms, is_float
from tsdb.cli.terminal.errors import fail
from tsdb.cli.terminal.output import json_line, json_value, note, print_table, value_text
from tsdb.client import QueryResult, SelectResult
from tsdb.model.labels import format_series, parse_labels
from tsdb.model.times import time_text

ResultFormat = Literal["table", "json", "csv", "parquet"]
SUFFIXES: dict[str, ResultFormat] = {".json": "json", ".csv": "csv", ".parquet": "parquet"}

Result = SelectResult | QueryResult


class ResultRow(NamedTuple):
    """A series: labels, times and values of its numbers, times and indexes of its native histograms."""

    canonical: bytes
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    histograms: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None


BARS = "▁▂▃▄▅▆▇█"
WIDTH = 24


@dataclass(frozen=True, slots=True)
class OutputTarget:
    """path: the file, None for stdout. rows_max: most series in a table, 0 for all. wide: CSV and Parquet have a column
    for each label."""

    form: ResultFormat
    path: Path | None
    rows_max: int
    wide: bool = False

    def check(self) -> None:
        """Raises BadParameter for a file that cannot be written, and for a format that the output cannot have."""
        path = self.path
        if self.wide and self.form not in ("csv", "parquet"):
            raise typer.BadParameter(f"--wide goes with csv and parquet; the format is {self.form}")
        if self.form == "table" and path is not None:
            raise typer.BadParameter(f"--out {path}: a file is json, csv or parquet, by its name or by --output")
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            problem = "is a folder" if path.is_dir() else "is in a folder that is not there"
            raise typer.BadParameter(f"--out {path} {problem}")
        if self.form == "parquet" and path is None and sys.stdout.isatty():
            raise typer.BadParameter("Parquet is not for a terminal: give --out FILE")

    @contextlib.contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The file, which is written completely or not at all, or stdout."""
        if self.path is None:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        partial = self.path.with_name(f".{self.path.name}.part")
        try:
            with partial.open("wb") as target:
                yield target
            partial.replace(self.path)
        finally:
            partial.unlink(missing_ok=True)


def result_format(given: ResultFormat | None, path: Path | None) -> ResultFormat:
    """The format of --output; without it that of the file's name, and a table on stdout."""
    return given or (SUFFIXES.get(path.suffix.lower(), "table") if path is not None else "table")


def write_result(result: Result, rest: Mapping[str, Any], target: OutputTarget) -> None:
    """Write the result in any format except the table. rest: JSON fields that follow the series."""
    with target.open() as file:
        if target.form == "json":
            _write_json(result, rest, file)
        elif target.form == "csv":
            _write_csv(result, file, target.wide)
        else:
            _write_parquet(result, file, target.wide)


def _write_json(result: Result, rest: Mapping[str, Any], file: BinaryIO) -> None:
    """Write one line: {"series":[{"labels":{},"ts_ms":[],"values":[]}], ...}, series by series.

    A series with native histograms has its numbers there, and then "histograms":[], as in the HTTP API.
    """
    histograms = ResultHistograms(result) if has_histograms(result) else None
    floats = is_float(result)
    file.write(b'{"series":[')
    for index, (labels, ts_ms, values) in enumerate(result):
        start, end = result.starts[index : index + 2].tolist()
        of_float = floats[start:end]
        entry = {"labels": labels, "ts_ms": ts_ms[of_float].tolist(), "values": _json_values(values[of_float])}
        line = json_line(entry).rstrip("\n").encode()
        if histograms is not None and not of_float.all():
            line = line[:-1] + b',"histograms":' + histograms.points(start, end) + b"}"
        file.write(b"," * bool(index) + line)
    file.write(b"]," + json_line(rest)[1:].encode())


def _json_values(values: NDArray[np.float64]) -> list[float | str]:
    if np.isfinite(values).all():
        numbers: list[float | str] = values.tolist()
        return numbers
    return [json_value(value) for value in values.tolist()]


def _write_csv(result: Result, file: BinaryIO, wide: bool) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pacsv

    if has_histograms(result):
        fail("the result has native histograms, and a line of CSV has one number: take --output json or parquet")
    table = _wide_table(result) if wide else result.to_arrow()
    # The spelling of `tsdb write` and Prometheus.
    special = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
    texts = table["value"].cast(pa.string())
    for spelled, wanted in special.items():
        texts = pc.if_else(pc.equal(texts, spelled), wanted, texts)
    columns = dict(zip(table.column_names, table.columns, strict=True)) | {"value": texts}
    if wide:
        columns["time"] = pc.strftime(columns["time"], "%Y-%m-%d %H:%M:%S")  # The form that spreadsheets read.
    plain = {name: one.cast(pa.string()) if pa.types.is_dictionary(one.type) else one for name, one in columns.items()}
    pacsv.write_csv(pa.table(plain), file)


def _write_parquet(result: Result, file: BinaryIO, wide: bool) -> None:
    import pyarrow.parquet as pq

    pq.write_table(_wide_table(result) if wide else result.to_arrow(), file, compression="zstd")


def _wide_table(result: Result) -> Any:  # A table of Arrow.
    """Columns time (timestamp[ms, UTC]), one for each label, sorted by name and null where a series lacks it, and
    value. A label named as another column gets a column such as label_time. Where a sample is a native histogram, its
    value is null and a column `histogram` follows."""
    import pyarrow as pa

    found = [dict(parse_labels(canonical)) for canonical in result.canonical]
    codes = pa.array(np.repeat(np.arange(len(found), dtype=np.int32), np.diff(result.starts)))
    columns: dict[str, Any] = {"time": pa.array(result.ts_ms).cast(pa.timestamp("ms", "UTC"))}
    plain = result.to_arrow()
    rest = {name: plain[name] for name in ("value", "histogram") if name in plain.column_names}
    for name in sorted({name for labels in found for name in labels}):
        texts = pa.array([labels.get(name) for labels in found], pa.string())
        columns[f"label_{name}" if name in columns or name in rest else name] = texts.take(codes)
    return pa.table(columns | rest)


def print_sample_table(result: Result, empty: TimeRange, rows_max: int) -> None:
    """Table by labels: number of samples, first, last, lowest and highest value, sparkline. Native histograms have a
    separate table below.

    empty: the range in the summary of a result without samples.

    """
    ts_ms = result.ts_ms
    span = TimeRange(int(ts_ms.min()), int(ts_ms.max()) + 1) if len(ts_ms) else empty
    found = sorted(_series(result), key=lambda row: row.canonical)
    _print_courses("samples", result, _shown(found, rows_max), span, WIDTH)
    _sum_up(found, rows_max, f", {len(ts_ms):,} samples, {time_text(span.start_ms)} to {time_text(span.end_ms)}")


def print_step_table(result: QueryResult, step_ms: int, rows_max: int) -> None:
    """Prints series in the order of the result, like print_sample_table. The sparkline shows all steps, with gaps."""
    found, times_ms = _series(result), result.times_ms
    first_ms, last_ms = int(times_ms[0]), int(times_ms[-1])
    # Fewer steps than bars would leave a gap beside each bar.
    span = TimeRange(first_ms, last_ms + step_ms)
    _print_courses("points", result, _shown(found, rows_max), span, min(WIDTH, len(times_ms)))
    size = f", {len(result.values):,} points, step {duration_text(step_ms)}"
    _sum_up(found, rows_max, f"{size}, {time_text(first_ms)} to {time_text(last_ms)}")


def print_value_table(result: QueryResult, rows_max: int) -> None:
    """Print the value of each series in the order of the result, which sort() and topk() choose."""
    found = _series(result)
    shown = _shown(found, rows_max)
    numbers = [row for row in shown if len(row.values)]
    if numbers or not shown:
        rows = ((_name(row.canonical), value_text(float(row.values[0]))) for row in numbers)
        print_table(("series", "value"), rows, right=("value",))
    _print_histograms(result, shown, None, 0)
    _sum_up(found, rows_max, f" at {time_text(int(result.times_ms[0]))}")
    if not found:
        note("a sample counts for 5m after its time, or for --lookback; --last 1d shows a range")


def _series(result: Result) -> list[ResultRow]:
    floats = is_float(result)
    of = None if result.details is None else result.details.histogram_of
    found = []
    for canonical, (start, end) in zip(result.canonical, pairwise(result.starts.tolist()), strict=True):
        where = floats[start:end]
        ts_ms, values = result.ts_ms[start:end], result.values[start:end]
        histograms = None if of is None else (ts_ms[~where], of[start:end][~where])
        found.append(ResultRow(canonical, ts_ms[where], values[where], histograms))
    return found


def _shown(found: Sequence[ResultRow], rows_max: int) -> Sequence[ResultRow]:
    return found[:rows_max] if rows_max else found


def _name(canonical: bytes) -> str:
    return format_series(canonical) or "{}"


def _print_courses(counted: str, result: Result, shown: Sequence[ResultRow], span: TimeRange, bars: int) -> None:
    columns = (counted, "first", "last", "min", "max")
    numbers = [row for row in shown if len(row.values)]
    if numbers or not shown:
        print_table(("series", *columns, "spark"), (_course(row, span, bars) for row in numbers), right=columns)
    _print_histograms(result, shown, (counted, span), bars)


def _print_histograms(
    result: Result, shown: Sequence[ResultRow], course: tuple[str, TimeRange] | None, bars: int
) -> None:
    """Print a line for each series with histograms: count, sum and quantiles of the last one. course: name of the
    column with their number, and the range of the sparkline of the counts; None for one histogram of each series."""
    rows = [(row, *row.histograms) for row in shown if row.histograms is not None and len(row.histograms[0])]
    if not rows:
        return
    found = ResultHistograms(result)
    quantiles = found.quantiles([int(of[-1]) for _, _, of in rows])
    columns = ("count", "sum", *QUANTILE_NAMES)
    lines: list[tuple[object, ...]] = []
    for (row, ts_ms, of), values in zip(rows, quantiles, strict=True):
        numbers = [float(found.counts[of[-1]]), float(found.sums[of[-1]]), *values]
        line: tuple[object, ...] = (_name(row.canonical), *(f"{number:.6g}" for number in numbers))
        if course is not None:
            span = course[1]
            spark = sparkline(ts_ms, found.counts[of], span.start_ms, span.end_ms, bars)
            line = (line[0], len(of), *line[1:], spark)
        lines.append(line)
    if course is None:
        print_table(("series", *columns), lines, right=columns)
    else:
        print_table(("series", course[0], *columns, "spark of count"), lines, right=(course[0], *columns))


def _course(row: ResultRow, span: TimeRange, bars: int) -> tuple[object, ...]:
    canonical, ts_ms, values = row.canonical, row.ts_ms, row.values
    known = values[~np.isnan(values)]
    least, greatest = (known.min(), known.max()) if len(known) else (np.nan, np.nan)
    numbers = (f"{float(value):.6g}" for value in (values[0], values[-1], least, greatest))
    return (_name(canonical), len(values), *numbers, sparkline(ts_ms, values, span.start_ms, span.end_ms, bars))


def _sum_up(found: Sequence[ResultRow], rows_max: int, rest: str) -> None:
    hidden = len(found) - len(_shown(found, rows_max))
    note(f"{len(found):,} series{rest}" + (f"; {hidden:,} series not shown (--rows 0 shows all)" if hidden else ""))


def sparkline(
    ts_ms: NDArray[np.int64], values: NDArray[np.float64], start_ms: int, end_ms: int, width: int = WIDTH
) -> str:
    """Bars of the mean finite value in each of `width` equal parts of [start_ms, end_ms); a blank for an empty part.

    The lowest mean is the lowest bar, the highest mean the highest bar; a constant series is in the middle.
    """
    finite = np.isfinite(values)
    cells = (ts_ms[finite] - start_ms) * width // max(end_ms - start_ms, 1)
    known = values[finite]
    scale = float(np.abs(known).max(initial=0.0)) or 1.0
    # Values are scaled first, because sums near the largest float would overflow.
    sums = np.bincount(cells, known / scale, minlength=width)[:width]
    counts = np.bincount(cells, minlength=width)[:width]
    means = np.divide(sums, counts, out=np.full(width, np.nan), where=counts > 0)
    return "".join(_bar(mean, *_bounds(means)) for mean in means.tolist())


def _bounds(means: NDArray[np.float64]) -> tuple[float, float]:
    known = means[np.isfinite(means)]
    return (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)


def _bar(mean: float, low: float, high: float) -> str:
    if np.isnan(mean):
        return " "
    if high == low:
        return BARS[len(BARS) // 2]
    return BARS[min(int((mean - low) / (high - low) * len(BARS)), len(BARS) - 1)]
