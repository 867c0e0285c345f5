"""View: finds the newest published state of a table and its files by partition, without the catalog. Thread-safe.

The hint beside the metadata names the newest one. A hint that goes back, as two writers may leave it, is passed over,
so that what a reader saw stays.
"""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.conversions import from_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import Table
from pyiceberg.types import LongType, PrimitiveType, StringType

from tsdb.history.iceberg.blocks import FileRef
from tsdb.history.iceberg.catalog import (
    HINT,
    METADATA_SUFFIX,
    MISSING,
    RETRY_AFTER_S,
    UNAVAILABLE,
    translate_table_errors,
)
from tsdb.history.iceberg.state import CHANGED
from tsdb.model.errors import ConfigMismatch, Unavailable

HINT_FORM = re.compile(rb"[\w-]{1,200}")

FilesByPlace = Mapping[tuple[int, int], Sequence[FileRef]]


@dataclass(frozen=True, slots=True)
class TableView:
    """A table at one snapshot. files: by the values of its partition fields."""

    table: Table
    files: FilesByPlace

    @property
    def number(self) -> int:
        """Number that rises with each commit of rows."""
        snapshot = self.table.current_snapshot()
        return 0 if snapshot is None else snapshot.sequence_number or 0


class FollowedTable:
    """The view of one table, read again when asked."""

    def __init__(self, io: FileIO, location: str, name: tuple[str, ...]) -> None:
        self._io = io
        self._location = location
        self._name = name
        self._lock = threading.Lock()  # Guards all below. One caller at a time reads.
        self._hint = b""
        self._view: TableView | None = None
        self._manifests: dict[str, list[tuple[tuple[int, int], FileRef]]] = {}  # Files by path of their manifest.

    def refresh(self) -> TableView:
        """The newest view. Raises Unavailable (tables_missing, tables_unavailable), ConfigMismatch (tables_changed)."""
        with self._lock:
            hint = self._read_hint()
            if hint != self._hint or self._view is None:
                with translate_table_errors(f"table {self._location}"):
                    view = self._loaded(hint)
                if self._view is None or view.number >= self._view.number:
                    self._view = view
                self._hint = hint
            return self._view

    def _read_hint(self) -> bytes:
        path = f"{self._location}/metadata/{HINT}"
        try:
            with translate_table_errors(f"table {self._location}"), self._io.new_input(path).open() as stream:
                hint: bytes = stream.read().strip()
        except Exception as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise Unavailable(
                    f"no table is published in {self._location} yet: a loader with --tables keeps it, after `tsdb"
                    " tables create`",
                    reason=MISSING,
                    retry_after_s=RETRY_AFTER_S,
                ) from error
            raise
        if not HINT_FORM.fullmatch(hint):
            raise Unavailable(f"{path} names no metadata: {hint[:100]!r}", reason=UNAVAILABLE, retry_after_s=1.0)
        return hint

    def _loaded(self, hint: bytes) -> TableView:
        location = f"{self._location}/metadata/{hint.decode()}{METADATA_SUFFIX}"
        metadata = FromInputFile.table_metadata(self._io.new_input(location))
        table = Table(self._name, metadata, location, self._io, NoopCatalog("published"))
        return TableView(table, self._files(table))

    def _files(self, table: Table) -> FilesByPlace:
        snapshot = table.current_snapshot()
        known, self._manifests = self._manifests, {}
        files: dict[tuple[int, int], list[FileRef]] = defaultdict(list)
        for manifest in [] if snapshot is None else snapshot.manifests(self._io):
            if manifest.content != ManifestContent.DATA:
                raise ConfigMismatch(
                    f"table {self._location} has delete files, which another program wrote: rewrite the data files",
                    reason=CHANGED,
                )
            path = manifest.manifest_path
            entries = known.get(path)
            if entries is None:
                found = [entry.data_file for entry in manifest.fetch_manifest_entry(self._io)]
                entries = [_placed(table, one) for one in found if one.content == DataFileContent.DATA]
            self._manifests[path] = entries
            for place, file in entries:
                files[place].append(file)
        return files


def _placed(table: Table, file: DataFile) -> tuple[tuple[int, int], FileRef]:
    ids = {one.name: one.field_id for one in table.schema().fields}

    def bounds(name: str, kind: PrimitiveType) -> Any:
        low, high = (file.lower_bounds or {}).get(ids.get(name, 0)), (file.upper_bounds or {}).get(ids.get(name, 0))
        return None if low is None or high is None else (from_bytes(kind, low), from_bytes(kind, high))

    ref = FileRef(
        file.file_path,
        file.file_size_in_bytes,
        file.record_count,
        bounds("ts", LongType()),
        bounds("series_id", LongType()),
        bounds("metric", StringType()),
    )
    return (file.partition[0], file.partition[1]), ref
