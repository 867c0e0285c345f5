"""OutputTarget: the file or standard output that gets the result of a query, and the format of the result."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import typer

ResultFormat = Literal["table", "json", "csv", "parquet"]


@dataclass(frozen=True, slots=True)
class OutputTarget:
    """path: the file, None for stdout. rows_max: most series in a table, 0 for all."""

    form: ResultFormat
    path: Path | None
    rows_max: int

    def check(self) -> None:
        """Raises BadParameter for a file that cannot be written, and for a format that the output cannot have."""
        path = self.path
        if self.form == "table" and path is not None:
            raise typer.BadParameter("--out goes with json, csv or parquet")
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
