"""Blocks: reads columns of row groups of the table's files. Files of object storage are read through a cache on disk.

A file of the table never changes, so what was read of it stays valid. The cache on disk has the byte ranges that reads
needed, in sparse files of the same offsets, and drops the files that were used least recently. A read fetches several
files at once. Thread-safe.
"""

from __future__ import annotations

import os
import shutil
import struct
import tempfile
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.io import FileIO

from tsdb.history.iceberg.catalog import local_path
from tsdb.history.iceberg.decoded import CACHED, DECODED, DecodedGroups, DecodedRead, groups_total
from tsdb.history.iceberg.rows import DETAIL_COLUMNS
from tsdb.model.errors import CorruptData
from tsdb.ops.metrics import counter, gauge

FOOTERS_BYTES_MAX = 64 << 20
TAIL_BYTES = 64 << 10  # Read at once from the end of a file; most footers fit.
FETCHES_AT_ONCE = 8  # Requests to object storage of all reads; each takes some ms, and a day as emitted has 24 files.
GAP_BYTES_MAX = 256 << 10  # Ranges with less between them are fetched in one request.
FILE_CORRUPT = "tables_file_corrupt"
INT64 = np.iinfo(np.int64)
MAGIC = b"PAR1"

fetched_total = counter(
    "tsdb_history_cache_fetched_bytes_total", "Bytes of the table's files read from object storage."
)
cached_bytes = gauge("tsdb_history_cache_bytes", "Bytes of the table's files in the cache on disk.")


SAMPLE_COLUMNS = ("series_id", "ts", "value", "order")
_DETAILS = ("start_ts", "histogram.count")  # Paths of columns that are null without details.


@dataclass(frozen=True, slots=True)
class FileRef:
    """A file of the table. Bounds include both ends; None: unknown. ts in microseconds, series_id signed."""

    path: str
    size: int
    rows: int
    ts: tuple[int, int] | None = None
    series: tuple[int, int] | None = None
    metric: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Footer:
    """Metadata of a file. series_low, series_high: int64 (g,); metrics: bounds of each row group, None: unknown.
    has_details: whether a row may have a histogram or a start timestamp."""

    metadata: pq.FileMetaData
    series_low: NDArray[np.int64]
    series_high: NDArray[np.int64]
    metrics: list[tuple[str, str] | None]
    has_details: bool

    @classmethod
    def of(cls, metadata: pq.FileMetaData) -> Footer:
        low, high, metrics = [], [], []
        names = [metadata.schema.column(at).path for at in range(metadata.num_columns)]
        of_series, of_metric = names.index("series_id"), names.index("metric")
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            series, metric = group.column(of_series).statistics, group.column(of_metric).statistics
            known = series is not None and series.has_min_max
            low.append(series.min if known else INT64.min)
            high.append(series.max if known else INT64.max)
            metrics.append((metric.min, metric.max) if metric is not None and metric.has_min_max else None)
        has_details = any(name in names and _has_values(metadata, names.index(name)) for name in _DETAILS)
        return cls(metadata, np.array(low, np.int64), np.array(high, np.int64), metrics, has_details)

    def groups(self, names: Sequence[str], series: NDArray[np.int64] | None) -> list[int]:
        """Row groups that may have a row of one of these metrics (ascending) and series, ascending; None: of any."""
        found = [at for at, one in enumerate(self.metrics) if one is None or has_between(names, *one)]
        if series is None:
            return found
        first = np.searchsorted(series, self.series_low)
        has = (first < len(series)) & (series[np.minimum(first, len(series) - 1)] <= self.series_high)
        return [at for at in found if has[at]]


def _has_values(metadata: pq.FileMetaData, column: int) -> bool:
    """Whether a value of the column may not be null."""
    for number in range(metadata.num_row_groups):
        found = metadata.row_group(number).column(column)
        statistics = found.statistics
        if statistics is None or not statistics.has_null_count or statistics.null_count < found.num_values:
            return True
    return False


def has_between(ascending: Sequence[str], low: str, high: str) -> bool:
    """Whether one of them is in [low, high]."""
    at = bisect_left(ascending, low)
    return at < len(ascending) and ascending[at] <= high


class Blocks:
    """Reads the files of one table and of that of its series. cache: None while all files are local."""

    def __init__(self, io: FileIO, cache: DiskCache | None, decoded_bytes_max: int) -> None:
        self._io = io
        self._cache = cache
        self.decoded = DecodedGroups(decoded_bytes_max)
        self._lock = threading.Lock()  # Guards the footers; an innermost lock.
        self._footers: OrderedDict[str, Footer] = OrderedDict()
        self._footer_bytes = 0
        self._fetchers = None if cache is None else ThreadPoolExecutor(FETCHES_AT_ONCE, "history-fetch")

    def footers(self, files: Sequence[FileRef]) -> list[Footer]:
        """The footers of these files. Raises as footer."""
        if self._fetchers is None or len(files) == 1:
            return [self.footer(file) for file in files]
        return list(self._fetchers.map(self.footer, files))

    def footer(self, file: FileRef) -> Footer:
        """Raises FileNotFoundError, CorruptData (tables_file_corrupt), OSError."""
        with self._lock:
            known = self._footers.get(file.path)
            if known is not None:
                self._footers.move_to_end(file.path)
                return known
        with _decoding(file), self._opened(file) as source:
            footer = Footer.of(source.metadata())
        with self._lock:
            if file.path not in self._footers:
                self._footers[file.path] = footer
                self._footer_bytes += footer.metadata.serialized_size
            while self._footer_bytes > FOOTERS_BYTES_MAX and len(self._footers) > 1:
                _, oldest = self._footers.popitem(last=False)
                self._footer_bytes -= oldest.metadata.serialized_size
        return footer

    def read(self, file: FileRef, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """These columns of these row groups, text as dictionaries. Raises as footer."""
        metadata = self.footer(file).metadata
        with _decoding(file), self._opened(file) as source:
            source.fetch(_ranges(metadata, groups, columns))
            parquet = pq.ParquetFile(str(source.path), metadata=metadata, memory_map=True, read_dictionary=["metric"])
            with parquet:
                return parquet.read_row_groups(list(groups), columns=list(columns), use_threads=len(groups) > 1)

    def read_each(self, parts: Sequence[tuple[FileRef, list[int]]], read: DecodedRead | None) -> Iterator[pa.Table]:
        """As `read_samples`, of these row groups of each file; the next files are fetched at once."""
        if self._fetchers is None:
            yield from (self.read_samples(file, groups, read) for file, groups in parts)
            return
        for first in range(0, len(parts), FETCHES_AT_ONCE):
            share = parts[first : first + FETCHES_AT_ONCE]
            with ExitStack() as stack:
                # In use, a file stays in the cache until it is read.
                sources = [stack.enter_context(self._opened(file)) for file, _ in share]
                list(self._fetchers.map(self._fetch, share, sources))
                yield from (self.read_samples(file, groups, read) for file, groups in share)

    def _fetch(self, part: tuple[FileRef, list[int]], source: _LocalFile | _CachedFile) -> None:
        file, groups = part
        columns = self._columns(file)
        needed = [number for number in groups if self.decoded.get((file.path, number, columns)) is None]
        if needed:
            with _decoding(file):
                source.fetch(_ranges(self.footer(file).metadata, needed, columns))

    def _columns(self, file: FileRef) -> tuple[str, ...]:
        """Null columns of structs take as long to read as the samples, so only files with details have them read."""
        return (*SAMPLE_COLUMNS, *DETAIL_COLUMNS) if self.footer(file).has_details else SAMPLE_COLUMNS

    def read_samples(self, file: FileRef, groups: Sequence[int], read: DecodedRead | None) -> pa.Table:
        """As `read`, of samples, with the row groups that an earlier read left decoded; `read` gets the others. None:
        too large."""
        columns = self._columns(file)
        keys = [(file.path, number, columns) for number in groups]
        found = [self.decoded.get(key) for key in keys]
        missing = [at for at, group in enumerate(found) if group is None]
        if missing and read is None:
            groups_total.labels(DECODED).inc(len(groups))
            return self.read(file, groups, columns)
        groups_total.labels(CACHED).inc(len(groups) - len(missing))
        groups_total.labels(DECODED).inc(len(missing))
        for at in missing:  # One by one, so that no row group keeps the memory of another.
            assert read is not None
            found[at] = read.groups[keys[at]] = self.read(file, groups[at : at + 1], columns)
        return found[0] if len(found) == 1 else pa.concat_tables(found)

    def close(self) -> None:
        self.decoded.clear()
        if self._fetchers is not None:
            self._fetchers.shutdown(wait=True, cancel_futures=True)
        if self._cache is not None:
            self._cache.close()

    @contextmanager
    def _opened(self, file: FileRef) -> Iterator[_LocalFile | _CachedFile]:
        local = local_path(file.path)
        if local is not None:
            yield _LocalFile(local)
            return
        assert self._cache is not None, "files of object storage have a cache"
        with self._cache.file(self._io, file) as cached:
            yield cached


@contextmanager
def _decoding(file: FileRef) -> Iterator[None]:
    try:
        yield
    except pa.ArrowInvalid as error:
        raise _corrupt(file, str(error)) from error
    except OSError as error:
        # Arrow gives damage that it meets while it decodes the class of an error of I/O, without a number.
        if isinstance(error, FileNotFoundError) or error.errno is not None or "AWS Error" in str(error):
            raise
        raise _corrupt(file, str(error)) from error


def _corrupt(file: FileRef, why: str) -> CorruptData:
    return CorruptData(
        f"file {file.path} of the table is damaged: {(why.splitlines() or [''])[0]}; restore it, or make a new table"
        " under another name",
        reason=FILE_CORRUPT,
    )


def _ranges(metadata: pq.FileMetaData, groups: Sequence[int], columns: Sequence[str]) -> list[tuple[int, int]]:
    """Byte ranges [start, end) of the columns' chunks, ascending."""
    wanted = set(columns)
    places = [at for at in range(metadata.num_columns) if metadata.schema.column(at).path.partition(".")[0] in wanted]
    found = []
    for number in groups:
        group = metadata.row_group(number)
        for at in places:
            column = group.column(at)
            start = column.data_page_offset
            if column.has_dictionary_page and column.dictionary_page_offset:
                start = min(start, column.dictionary_page_offset)
            found.append((start, start + column.total_compressed_size))
    return sorted(found)


class _LocalFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def metadata(self) -> pq.FileMetaData:
        return pq.read_metadata(self.path, memory_map=True)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """The file has them."""


@dataclass
class _CachedFile:
    """Some ranges of a file, in a sparse file of its size. lock: guards all below; one request fetches a range once."""

    path: Path
    size: int
    io: FileIO
    location: str
    cache: DiskCache
    users: int = 0  # Guarded by the cache's lock, as is `bytes`.
    bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)
    ranges: set[tuple[int, int]] = field(default_factory=set)
    tail: int = field(init=False)  # The bytes from here on are present.
    source: Any = None

    def __post_init__(self) -> None:
        self.tail = self.size

    def metadata(self) -> pq.FileMetaData:
        tail = max(0, self.size - TAIL_BYTES)
        self.fetch([(tail, self.size)])
        with self.path.open("rb") as file:
            file.seek(max(0, self.size - 8))
            length, magic = struct.unpack("<I4s", file.read(8).rjust(8, b"\0"))
            if magic != MAGIC or length + 12 > self.size:
                raise pa.ArrowInvalid("it does not end as a Parquet file does")
            if self.size - 8 - length < tail:
                self.fetch([(self.size - 8 - length, tail)])
        return pq.read_metadata(self.path, memory_map=True)

    def fetch(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Make these ranges present; those near each other come in one request."""
        with self.lock:
            missing = [one for one in ranges if one not in self.ranges and one[0] < self.tail]
            if not missing:
                return
            if self.source is None:
                self.source = self.io.new_input(self.location).open()
            fetched = 0
            with self.path.open("r+b") as file:
                for start, through in _joined(missing):
                    end = min(through, self.tail)
                    data = self.source.read_at(end - start, start)
                    if len(data) != end - start:
                        raise pa.ArrowInvalid(f"it has {start + len(data)} bytes; the table says {self.size}")
                    file.seek(start)
                    file.write(data)
                    fetched += len(data)
            self.ranges.update(missing)
            # Small files are whole in what comes with the footer.
            self.tail = min([self.tail, *(start for start, end in missing if end == self.size)])
        fetched_total.inc(fetched)
        self.cache.grew(self, fetched)


def _joined(ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    start, end = ranges[0]
    for one in ranges[1:]:
        if one[0] - end <= GAP_BYTES_MAX:
            end = max(end, one[1])
        else:
            yield start, end
            start, end = one
    yield start, end


class DiskCache:
    """At most about `bytes_max` bytes of files in a new folder below `folder`, which `close` deletes. A file in use is
    not dropped, so the bytes of running reads may come on top."""

    def __init__(self, folder: Path | None, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parent = folder
        self._folder: Path | None = None
        self._lock = threading.Lock()  # Guards all below, and the counts of the files; an innermost lock.
        self._files: OrderedDict[str, _CachedFile] = OrderedDict()
        self._bytes = 0
        self._number = 0

    @contextmanager
    def file(self, io: FileIO, ref: FileRef) -> Iterator[_CachedFile]:
        """The cached file, which stays for the block."""
        with self._lock:
            file = self._files.get(ref.path)
            if file is None:
                file = self._files[ref.path] = self._new(io, ref)
            self._files.move_to_end(ref.path)
            file.users += 1
        try:
            yield file
        finally:
            with self._lock:
                file.users -= 1
                self._shrink_locked()

    def grew(self, file: _CachedFile, count: int) -> None:
        """A file got `count` bytes more."""
        with self._lock:
            file.bytes += count
            self._bytes += count
            self._shrink_locked()

    def close(self) -> None:
        with self._lock:
            self._files.clear()
            self._bytes = 0
            cached_bytes.set(0)
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder = None

    def _new(self, io: FileIO, ref: FileRef) -> _CachedFile:
        if self._folder is None:
            if self._parent is not None:
                self._parent.mkdir(parents=True, exist_ok=True)
            self._folder = Path(tempfile.mkdtemp(prefix="tsdb-history-", dir=self._parent))
        self._number += 1
        path = self._folder / str(self._number)
        with path.open("wb") as file:
            os.truncate(file.fileno(), ref.size)
        return _CachedFile(path, ref.size, io, ref.path, self)

    def _shrink_locked(self) -> None:
        if self._bytes > self._bytes_max:
            for path, file in list(self._files.items()):
                if not file.users:
                    del self._files[path]
                    file.path.unlink(missing_ok=True)  # A memory map of a read that has ended goes with its arrays.
                    self._bytes -= file.bytes
                    if self._bytes <= self._bytes_max:
                        break
        cached_bytes.set(self._bytes)
