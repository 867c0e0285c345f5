"""Writes a result as JSON, CSV or Parquet.

OutputTarget is the file or standard output that gets the result of a query, with the format of the result.

Prints a result as tables with a line for each series. A summary of the result follows on stderr.

Sparklines draw the values of a series over time in a few characters.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import typer
from numpy.typing import NDArray

from tsdb.cli.options.arguments import TimeRange, duration_text
from tsdb.cli.terminal.output import json_line, json_value, note, print_table, value_text
from tsdb.client import QueryResult, SelectResult
from tsdb.model.labels import format_series, parse_labels
from tsdb.model.times import time_text

ResultFormat = Literal["table", "json", "csv", "parquet"]
SUFFIXES: dict[str, ResultFormat] = {".json": "json", ".csv": "csv", ".parquet": "parquet"}

Result = SelectResult | QueryResult

Row = tuple[bytes, NDArray[np.int64], NDArray[np.float64]]
"""Labels, ts_ms and values of a series."""

WIDE_COLUMNS = ("time", "value")  # Columns of a wide table beside the labels.

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
    """Write one line: {"series":[{"labels":{},"ts_ms":[],"values":[]}], ...}, series by series."""
    file.write(b'{"series":[')
    for index, (labels, ts_ms, values) in enumerate(result):
        entry = {"labels": labels, "ts_ms": ts_ms.tolist(), "values": _json_values(values)}
        file.write(b"," * bool(index) + json_line(entry).rstrip("\n").encode())
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
    value. A label named time or value gets the column label_time or label_value."""
    import pyarrow as pa

    found = [dict(parse_labels(canonical)) for canonical in result.canonical]
    codes = pa.array(np.repeat(np.arange(len(found), dtype=np.int32), np.diff(result.starts)))
    columns: dict[str, Any] = {"time": pa.array(result.ts_ms).cast(pa.timestamp("ms", "UTC"))}
    for name in sorted({name for labels in found for name in labels}):
        texts = pa.array([labels.get(name) for labels in found], pa.string())
        columns[f"label_{name}" if name in WIDE_COLUMNS else name] = texts.take(codes)
    return pa.table(columns | {"value": pa.array(result.values)})


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
    """Prints series in the order of the result, like print_sample_table. The sparkline shows all steps, with gaps."""
    found, times_ms = _series(result), result.times_ms
    first_ms, last_ms = int(times_ms[0]), int(times_ms[-1])
    # Fewer steps than bars would leave a gap beside each bar.
    _print_courses("points", _shown(found, rows_max), TimeRange(first_ms, last_ms + step_ms), min(WIDTH, len(times_ms)))
    size = f", {len(result.values):,} points, step {duration_text(step_ms)}"
    _sum_up(found, rows_max, f"{size}, {time_text(first_ms)} to {time_text(last_ms)}")


def print_value_table(result: QueryResult, rows_max: int) -> None:
    """Print the value of each series in the order of the result, which sort() and topk() choose."""
    found = _series(result)
    rows = ((_name(canonical), value_text(float(values[0]))) for canonical, _, values in _shown(found, rows_max))
    print_table(("series", "value"), rows, right=("value",))
    _sum_up(found, rows_max, f" at {time_text(int(result.times_ms[0]))}")
    if not found:
        note("a sample counts for 5m after its time, or for --lookback; --last 1d shows a range")


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
