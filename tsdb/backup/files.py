"""Parquet files of a backup: written in row groups of bounded size, and read by them, so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from tsdb.backup.folder import BackupFolder, ChecksummedFile
from tsdb.backup.manifest import BackupFile
from tsdb.backup.tables import BackupTable

GROUP_BYTES = 4 << 20  # Bytes of a row group; both commands have one at a time in memory.
GROUP_ROWS = 20_000
ROW_BYTES = 64  # Bytes of a row beside its content.
FILE_BYTES = 256 << 20  # Fewer files cost fewer requests, but a smaller file is finished sooner.


class TableWriter:
    """Writes rows of one table into files PREFIX-000.parquet, PREFIX-001.parquet and so on. A context manager.

    `files` has the finished ones. No file is made without a row.
    """

    def __init__(self, folder: BackupFolder, prefix: str, table: BackupTable, *, file_bytes: int = FILE_BYTES) -> None:
        self._folder = folder
        self._prefix = prefix
        self._table = table
        self._file_bytes = file_bytes
        self._rows: list[tuple[Any, ...]] = []
        self._bytes = 0
        self._open: _OpenFile | None = None
        self._stack = ExitStack()
        self.files: list[BackupFile] = []

    def add(self, row: tuple[Any, ...], size: int) -> None:
        """Add a row. size: the bytes of the row."""
        self._rows.append(row)
        self._bytes += size + ROW_BYTES
        if self._bytes >= GROUP_BYTES or len(self._rows) >= GROUP_ROWS:
            self._write_group()

    def _write_group(self) -> None:
        if self._open is None:
            name = f"{self._prefix}-{len(self.files):03d}.parquet"
            self._open = _OpenFile(name, self._stack.enter_context(self._folder.writing(name)), self._table)
        self._open.write(self._table.batch(self._rows))
        self._rows, self._bytes = [], 0
        if self._open.size >= self._file_bytes:
            self._finish_file()

    def _finish_file(self) -> None:
        if self._open is not None:
            done, self._open = self._open.finish(), None
            self._stack.close()
            self.files.append(done)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            if self._rows:
                self._write_group()
            self._finish_file()
        self._stack.__exit__(kind, error, trace)


class _OpenFile:
    def __init__(self, name: str, file: ChecksummedFile, table: BackupTable) -> None:
        self._name = name
        self._file = file
        self._table = table
        self._writer = pq.ParquetWriter(
            file,
            table.schema,
            compression=table.compression(),
            # A dictionary, or the least and greatest value, would only cost bytes for chunks.
            use_dictionary=[name for name in table.schema.names if name not in table.dense],
            write_statistics=[name for name in table.schema.names if name == table.bounds],
        )
        self._row_count = 0
        self._low: int | None = None
        self._high: int | None = None

    @property
    def size(self) -> int:
        return self._file.size

    def write(self, group: pa.Table) -> None:
        self._writer.write_table(group, row_group_size=len(group))
        self._row_count += len(group)
        if self._table.bounds is not None:
            values = group.column(self._table.bounds).to_numpy()
            low, high = int(values.min()), int(values.max())
            self._low = low if self._low is None else min(self._low, low)
            self._high = high if self._high is None else max(self._high, high)

    def finish(self) -> BackupFile:
        self._writer.close()
        bounds = None if self._low is None or self._high is None else (self._low, self._high)
        return BackupFile(self._name, self._table.name, self._row_count, self._file.size, self._file.sha256, bounds)


def read_groups(folder: BackupFolder, file: BackupFile) -> Iterator[pa.Table]:
    """The row groups of a file, one after another."""
    with folder.reading(file.name) as stream, pq.ParquetFile(stream, pre_buffer=False) as parquet:
        for number in range(parquet.num_row_groups):
            yield parquet.read_row_group(number, use_threads=False)
