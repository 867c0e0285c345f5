"""Files of a sink: each appears complete or not at all, and is durable once it appears.

A local path or a URI (`s3://`, `gs://`, `abfs://`) gives a file system of Arrow and the path there.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from tsdb.model.errors import CorruptData, InvalidRequest, Unavailable
from tsdb.model.secrets import masked

RETRY_AFTER_S = 1.0


@contextmanager
def translate_file_errors(where: str) -> Iterator[None]:
    """Raise OSError as Unavailable: a full or lost disk may come back."""
    try:
        yield
    except OSError as error:
        raise Unavailable(f"{where}: {error}", reason="disk_error", retry_after_s=RETRY_AFTER_S) from error


def add_table(folder: Path, table: pa.Table) -> None:
    """Write a new file into the folder, durable on return."""
    with _replacing(folder / f"{uuid.uuid4().hex}.parquet") as path:
        pq.write_table(table, path, compression="zstd")


def put_json(path: Path, values: Mapping[str, Any]) -> None:
    """Write a small file, replacing a file of that name, durable on return."""
    with _replacing(path) as new:
        new.write_text(json.dumps(values, sort_keys=True))


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises CorruptData (corrupt_row) for anything else, FileNotFoundError."""
    text = path.read_text()
    try:
        values = json.loads(text)
    except ValueError as error:
        raise CorruptData(f"{path} is not JSON: {error}", reason="corrupt_row") from error
    if not isinstance(values, dict):
        raise CorruptData(f"{path} is not a JSON object", reason="corrupt_row")
    return values


def sync_folder(folder: Path) -> None:
    """Make the file names in a folder survive a crash of the machine."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """Gives a path to write to. The written file then gets its name in one atomic step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Readers of Parquet folders skip names that begin with a dot.
    new = path.with_name(f".{path.name}.new")
    try:
        yield new
        with new.open("rb") as written:
            os.fsync(written.fileno())
        new.replace(path)
        sync_folder(path.parent)
    finally:
        new.unlink(missing_ok=True)


def file_system(folder: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a path or URI, and the path there. Raises InvalidRequest (bad_folder)."""
    uri = folder if "://" in folder else Path(folder).absolute().as_uri()
    try:
        system, root = pafs.FileSystem.from_uri(uri)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ImportError) as error:
        raise InvalidRequest(
            masked(f"{folder} is no folder: {error}; want a path, or a URI such as s3://bucket/folder"),
            reason="bad_folder",
        ) from error
    return system, root.rstrip("/") or "/"
