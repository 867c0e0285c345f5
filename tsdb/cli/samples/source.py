"""Opens the input file of `tsdb write` and finds its format."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

import typer

from tsdb.cli.samples.exposition import Dialect
from tsdb.cli.samples.rows import SampleRows
from tsdb.cli.samples.text import file_dialect, read_jsonl, read_prom
from tsdb.model.import_layout import ColumnNames

Format = Literal["parquet", "csv", "jsonl", "prom", "openmetrics"]

_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".prom": "prom",
    ".openmetrics": "openmetrics",
}


def readable(text: str) -> Path:
    """The path of an existing file, or -. Raises BadParameter."""
    path = Path(text)
    if text != "-" and not path.is_file():
        raise typer.BadParameter(f"{text} {'is not a file' if path.exists() else 'does not exist'}")
    return path


def format_of(path: Path, asked: Format | None) -> Format:
    """The given format, else the one of the file's name."""
    found = asked or _SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise typer.BadParameter(f"cannot tell the format of {path} by its name: give --format")
    return found


@contextlib.contextmanager
def open_source(path: Path) -> Iterator[BinaryIO]:
    """The file, or stdin for -."""
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    with path.open("rb") as source:
        yield source


def read_rows(
    source: BinaryIO,
    name: str,
    form: Format,
    *,
    now_ms: int,
    round_times: bool = False,
    columns: ColumnNames | None = None,
    remark: Callable[[str], None] = lambda text: None,
) -> Iterator[SampleRows]:
    """Batches of rows in the order of the file. Raises InvalidRequest (bad_input), which names the position.

    round_times: times finer than a millisecond are rounded down, not refused. columns: names for
    Parquet and CSV; columns without a name are guessed.

    """
    if form == "jsonl":
        return read_jsonl(source, name, round_times=round_times)
    if form in ("prom", "openmetrics"):
        dialect = file_dialect(source) if form == "prom" else Dialect.OPENMETRICS
        return read_prom(source, name, now_ms=now_ms, dialect=dialect, remark=remark)
    # Imported here: Arrow is large, and every `tsdb` process loads this module.
    from tsdb.cli.samples.arrow import read_csv, read_parquet

    read = read_parquet if form == "parquet" else read_csv
    return read(source, name, columns=columns or ColumnNames(), round_times=round_times, remark=remark)
