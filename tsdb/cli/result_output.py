"""Output of a select's result as a table, JSON, CSV or Parquet."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from tsdb.cli.options.arguments import TimeRange
from tsdb.cli.terminal.output import json_line, json_value, message_dict, note, print_table
from tsdb.cli.terminal.sparkline import sparkline
from tsdb.client import SelectResult, Series
from tsdb.model.labels import format_series
from tsdb.model.times import time_text

ResultFormat = Literal["table", "json", "csv", "parquet"]

TABLE = ("series", "samples", "first", "last", "min", "max", "spark")


@contextlib.contextmanager
def open_target(path: Path | None) -> Iterator[BinaryIO]:
    """The file, which is written completely or not at all, or stdout."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = path.with_name(f".{path.name}.part")
    try:
        with partial.open("wb") as target:
            yield target
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_result(result: SelectResult, form: ResultFormat, target: BinaryIO) -> None:
    """Write the result in any format except the table."""
    if form == "json":
        _write_json(result, target)
    elif form == "csv":
        _write_csv(result, target)
    else:
        _write_parquet(result, target)


def print_result(result: SelectResult, asked: TimeRange, rows_max: int) -> None:
    """Print a line for each series, by labels: number of samples, first, last, lowest, highest value, sparkline."""
    found = sorted(result.series, key=lambda series: series.canonical)
    shown = found[:rows_max] if rows_max else found
    span = _span(result, asked)
    print_table(TABLE, (_row(series, span) for series in shown), right=("samples", "first", "last", "min", "max"))
    note(
        f"{len(found):,} series, {result.samples:,} samples, {time_text(span.start_ms)} to {time_text(span.end_ms)}"
        + (f"; {len(found) - len(shown):,} series not shown (--rows 0 shows all)" if len(shown) < len(found) else "")
    )


def _span(result: SelectResult, asked: TimeRange) -> TimeRange:
    if not result.samples:
        return asked
    return TimeRange(int(result.ts_ms.min()), int(result.ts_ms.max()) + 1)


def _row(series: Series, span: TimeRange) -> tuple[object, ...]:
    values = series.values
    known = values[~np.isnan(values)]
    least, greatest = (known.min(), known.max()) if len(known) else (np.nan, np.nan)
    numbers = (f"{float(value):.6g}" for value in (values[0], values[-1], least, greatest))
    spark = sparkline(series.ts_ms, values, span.start_ms, span.end_ms)
    return (format_series(series.canonical), len(values), *numbers, spark)


def _write_json(result: SelectResult, target: BinaryIO) -> None:
    """One line: {"series":[{"labels":{},"ts_ms":[],"values":[]}],"samples":n,"partitions":[...]}, series by series."""
    target.write(b'{"series":[')
    for index, series in enumerate(result.series):
        entry = {"labels": series.labels, "ts_ms": series.ts_ms.tolist(), "values": _json_values(series.values)}
        target.write(b"," * bool(index) + json_line(entry).rstrip("\n").encode())
    rest = {"samples": result.samples, "partitions": [message_dict(state) for state in result.partitions]}
    target.write(b"]," + json_line(rest)[1:].encode())


def _json_values(values: NDArray[np.float64]) -> list[float | str]:
    if np.isfinite(values).all():
        numbers: list[float | str] = values.tolist()
        return numbers
    return [json_value(value) for value in values.tolist()]


def _write_csv(result: SelectResult, target: BinaryIO) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pacsv

    table = result.to_arrow()
    # The spelling of `tsdb write` and Prometheus.
    special = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}
    texts = table["value"].cast(pa.string())
    for spelled, wanted in special.items():
        texts = pc.if_else(pc.equal(texts, spelled), wanted, texts)
    columns = [table["labels"].cast(pa.string()), table["ts_ms"], texts]
    pacsv.write_csv(pa.table(columns, names=["labels", "ts_ms", "value"]), target)


def _write_parquet(result: SelectResult, target: BinaryIO) -> None:
    import pyarrow.parquet as pq

    pq.write_table(result.to_arrow(), target, compression="zstd")
