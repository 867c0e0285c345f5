"""File systems of Arrow: a local path or a URI (`s3://`, `gs://`, `abfs://`) to a file system and the path there."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from tsdb.model.errors import InvalidRequest
from tsdb.model.secrets import masked


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
