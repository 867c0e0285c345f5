"""Files of a sink: each is there whole or not at all, and stays once it is."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tsdb.model.errors import CorruptData, Unavailable

RETRY_AFTER_S = 1.0


@contextmanager
def translate_file_errors(where: str) -> Iterator[None]:
    """Raise the file system's exceptions as ours: a full or lost disk passes, as far as we can know."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{where}: {error}", reason="disk_error", retry_after_s=RETRY_AFTER_S) from error


def add_table(folder: Path, table: pa.Table) -> None:
    """A new file of the folder, durable when this returns."""
    with _replacing(folder / f"{uuid.uuid4().hex}.parquet") as path:
        pq.write_table(table, path, compression="zstd")


def put_json(path: Path, values: Mapping[str, Any]) -> None:
    """A small file in place of the one of that name, durable when this returns."""
    with _replacing(path) as new:
        new.write_text(json.dumps(values, sort_keys=True))


def read_json(path: Path) -> dict[str, Any]:
    """Raises CorruptData (corrupt_row) when it is no JSON object, FileNotFoundError."""
    text = path.read_text()
    try:
        values = json.loads(text)
    except ValueError as error:
        raise CorruptData(f"{path} is not JSON: {error}", reason="corrupt_row") from error
    if not isinstance(values, dict):
        raise CorruptData(f"{path} is not a JSON object", reason="corrupt_row")
    return values


def sync_folder(folder: Path) -> None:
    """Make names in a folder survive the machine."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Gives the path to write to; what is there afterwards gets the name, at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Readers of Parquet folders pass over names that begin with a dot.
    new = path.with_name(f".{path.name}.new")
    try:
        yield new
        with new.open("rb") as written:
            os.fsync(written.fileno())
        new.replace(path)
        sync_folder(path.parent)
    finally:
        new.unlink(missing_ok=True)
