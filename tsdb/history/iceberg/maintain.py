"""Maintenance: joins small files of the table, drops old days, and old snapshots with the files that only they have;
marks losses as accepted.

All may run beside a keeper, and be killed at any point. They leave the state of the table as it is, so that a keeper
goes on with its commit. If the keeper commits first, a compaction goes on too, unless that commit replaced its files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.iceberg.catalog import CONFLICT, load_table, publish, translate_table_errors
from tsdb.history.iceberg.emission import FileChange, commit_files, is_conflict
from tsdb.history.iceberg.files import write_blocks
from tsdb.history.iceberg.rows import BLOCK_ROWS
from tsdb.history.iceberg.state import own_snapshot, table_state
from tsdb.model.arrays import csr_places
from tsdb.model.errors import Unavailable
from tsdb.ops.logs import get_logger

MIB = 1 << 20
SMALL_BYTES = 64 * MIB  # A file of at least this size is left as it is.
FILE_BYTES_TARGET = 256 * MIB
COMMIT_TRIES = 10
ROWS_AT_ONCE_MAX = 2 << 20  # A row takes some 100 bytes in memory, most of it for the labels.

log = get_logger(__name__)

Files = list[DataFile]


@dataclass(frozen=True, slots=True)
class Joined:
    """Small files of one day and bucket that became `files_after` larger ones. skipped: another program has not sorted
    them, or a commit replaced one of them meanwhile."""

    day: int
    bucket: int
    files_before: int
    files_after: int
    skipped: bool = False


def small_files(table: Table, files_min: int) -> dict[tuple[int, int], Files]:
    """The small files of each day and bucket that has at least files_min of them."""
    found: dict[tuple[int, int], Files] = defaultdict(list)
    if table.current_snapshot() is not None:
        for task in table.scan().plan_files():
            if task.file.file_size_in_bytes < SMALL_BYTES:
                found[task.file.partition[0], task.file.partition[1]].append(task.file)
    return {place: files for place, files in sorted(found.items()) if len(files) >= files_min}


def compact(catalog: Catalog, name: str, files_min: int) -> Iterator[Joined]:
    """Join the small files of each day and bucket, a share of them a commit. Raises as the table does."""
    table = load_table(catalog, name)
    table_state(table)  # A table that another program changed is refused.
    with translate_table_errors(f"table {name}"):
        for (day, bucket), files in small_files(table, files_min).items():
            for share in _shares(files):
                added = _joined(table, share, day, bucket)
                done = added is not None and _replace(catalog, name, FileChange(added, share))
                count = len(added) if added is not None and done else len(share)
                yield Joined(day, bucket, len(share), count, skipped=not done)


def _shares(files: Sequence[DataFile]) -> Iterator[Files]:
    """The files in shares of at least two, smallest first, of which a row group each fits memory at once."""
    share: Files = []
    rows = 0
    for file in sorted(files, key=lambda one: one.record_count):
        size = _group_rows(file)
        if len(share) > 1 and rows + size > ROWS_AT_ONCE_MAX:
            yield share
            share, rows = [], 0
        share.append(file)
        rows += size
    if len(share) > 1:
        yield share


def _group_rows(file: DataFile) -> int:
    """Most rows that a row group of the file may have: all but the last one have as many."""
    groups = len(file.split_offsets or ())
    return file.record_count // max(1, groups - 1)


def _replace(catalog: Catalog, name: str, change: FileChange) -> bool:
    """Commit on top of whatever the table is, as long as it has all of the removed files. False when it has not."""
    gone = {file.file_path for file in change.removed}
    for _ in range(COMMIT_TRIES):
        table = load_table(catalog, name)
        state = table_state(table)
        if state is None or not gone <= {task.file.file_path for task in table.scan().plan_files()}:
            return False
        try:
            with translate_table_errors(f"table {name}"):
                commit_files(table, change, state.properties())
        except Unavailable as error:
            if not is_conflict(error):
                raise
            continue
        return True
    raise _changed(name)


def _changed(name: str) -> Unavailable:
    return Unavailable(f"table {name} changed {COMMIT_TRIES} times in a row", reason=CONFLICT, retry_after_s=1.0)


def _joined(table: Table, files: Sequence[DataFile], day: int, bucket: int) -> Files | None:
    """New files with all rows of these; None for files that are not sorted as ours. In memory are a row group of each
    file and one of the new file."""
    rows, size = sum(file.record_count for file in files), sum(file.file_size_in_bytes for file in files)
    rows_max = max(BLOCK_ROWS, rows * FILE_BYTES_TARGET // max(size, 1) // BLOCK_ROWS * BLOCK_ROWS)
    with ExitStack() as stack:
        sources = [
            pq.ParquetFile(
                stack.enter_context(table.io.new_input(file.file_path).open()),
                read_dictionary=["metric", "tenant", "labels.key_value.key", "labels.key_value.value"],
            )
            for file in files
        ]
        rank, columns = _ranks(sources), {name for source in sources for name in source.schema_arrow.names}
        blocks = _in_blocks(_merged([_Rows(source, rank) for source in sources]))
        added = []
        try:
            while first := next(blocks, None):
                # The first block decides that there is one more file.
                rest = islice(blocks, rows_max // BLOCK_ROWS - 1)
                added.append(write_blocks(table, chain([first], rest), columns, day, bucket))
        except _UnsortedError:
            return None
        return added


class _UnsortedError(Exception):
    """Rows of a file are not sorted by metric, series and time."""


def _ranks(sources: Sequence[pq.ParquetFile]) -> dict[str, int]:
    """The place of each metric in the order of a file."""
    names: set[str] = set()
    for source in sources:
        for number in range(source.num_row_groups):
            names.update(source.read_row_group(number, columns=["metric"])["metric"].unique().to_pylist())
    return {name: at for at, name in enumerate(sorted(names, key=str.encode))}


def _merged(sources: Sequence[_Rows]) -> Iterator[pa.Table]:
    """All rows in order. Each turn takes the rows through the first end of a row group that more rows follow."""
    while left := [source for source in sources if source.fill()]:
        ends = [source.last() for source in left if source.has_more]
        bound = min(ends) if ends else None
        taken = [source.take(bound) for source in left]
        keys = [np.concatenate([part[1][at] for part in taken]) for at in range(3)]
        order = np.lexsort(keys[::-1])
        yield _taken(_concat([part[0] for part in taken]), order)


def _taken(table: pa.Table, rows: NDArray[np.int64]) -> pa.Table:
    """These rows. Arrow takes 1 us a row for a map of dictionaries, and the entries taken one by one a tenth of it."""
    columns = []
    for column in table.itercolumns():
        whole = column.combine_chunks()
        columns.append(_taken_maps(whole, rows) if pa.types.is_map(whole.type) else whole.take(pa.array(rows)))
    return pa.Table.from_arrays(columns, schema=table.schema)


def _taken_maps(maps: pa.MapArray, rows: NDArray[np.int64]) -> pa.Array:
    if maps.null_count:  # Labels are required; a column that another program added may have nulls.
        return maps.take(pa.array(rows))
    starts = maps.offsets.to_numpy().astype(np.int64)
    places, first = csr_places(starts, rows)
    entries = pa.array(places)
    return pa.MapArray.from_arrays(
        pa.array(first.astype(np.int32)), maps.keys.take(entries), maps.items.take(entries), type=maps.type
    )


def _in_blocks(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables of BLOCK_ROWS, which become row groups; the last one may be smaller."""
    waiting: list[pa.Table] = []
    rows = 0
    for table in tables:
        waiting.append(table)
        rows += len(table)
        if rows >= BLOCK_ROWS:
            joined = _concat(waiting)
            whole = rows - rows % BLOCK_ROWS
            yield from (joined.slice(first, BLOCK_ROWS) for first in range(0, whole, BLOCK_ROWS))
            waiting, rows = [joined.slice(whole)], rows - whole
    if rows:
        yield _concat(waiting)


def _concat(tables: Sequence[pa.Table]) -> pa.Table:
    """All rows, with the same dictionaries. A column that a table lacks is null there."""
    return pa.concat_tables(tables, promote_options="default").unify_dictionaries()


Key = tuple[int, int, int]  # Rank of the metric, series, time.


class _Rows:
    """The rows of a file, in order, one row group in memory."""

    def __init__(self, source: pq.ParquetFile, rank: dict[str, int]) -> None:
        self._source = source
        self._rank = rank
        self._next_group = 0
        self._rows: pa.Table = None
        self._keys: tuple[NDArray[np.int64], ...] = ()
        self._at = 0
        self._last: Key | None = None

    @property
    def has_more(self) -> bool:
        """Whether rows follow the row group in memory."""
        return self._next_group < int(self._source.num_row_groups)

    def fill(self) -> bool:
        """Have a row in memory. False at the end."""
        while self._rows is None or self._at == len(self._rows):
            if not self.has_more:
                return False
            rows = self._source.read_row_group(self._next_group)
            self._rows, self._at = rows.unify_dictionaries().combine_chunks(), 0
            self._keys = self._keys_of(self._rows)
            self._next_group += 1
        return True

    def last(self) -> Key:
        """Key of the last row in memory."""
        return self._key(len(self._rows) - 1)

    def take(self, through: Key | None) -> tuple[pa.Table, tuple[NDArray[np.int64], ...]]:
        """The rows in memory up to this key, and their keys."""
        first, end = self._at, len(self._rows)
        if through is not None:
            end = bisect_right(range(end), through, lo=first, key=self._key)
        self._at = end
        return self._rows.slice(first, end - first), tuple(one[first:end] for one in self._keys)

    def _key(self, at: int) -> Key:
        metric, series, ts = (int(one[at]) for one in self._keys)
        return metric, series, ts

    def _keys_of(self, rows: pa.Table) -> tuple[NDArray[np.int64], ...]:
        coded = rows["metric"].chunk(0)
        ranks = np.array([self._rank.get(one, -1) for one in coded.dictionary.to_pylist()], np.int64)[
            coded.indices.to_numpy()
        ]
        keys = ranks, rows["series_id"].to_numpy(), rows["ts"].cast(pa.int64()).to_numpy()
        if (np.lexsort(keys[::-1]) != np.arange(len(rows))).any():
            raise _UnsortedError
        before, self._last = self._last, (int(keys[0][-1]), int(keys[1][-1]), int(keys[2][-1]))
        if before is not None and before > (int(keys[0][0]), int(keys[1][0]), int(keys[2][0])):
            raise _UnsortedError
        return keys


# Retention.


def files_before(table: Table, day: int) -> Files:
    """The files of the days before this one, days since the epoch."""
    if table.current_snapshot() is None:
        return []
    return [task.file for task in table.scan().plan_files() if task.file.partition[0] < day]


def drop_before(catalog: Catalog, name: str, day: int) -> Files:
    """Take the days before this one out of the table, in one commit. The files go when their snapshots expire. Raises
    Unavailable (tables_conflict) if the keeper replaced one of them meanwhile."""
    table = load_table(catalog, name)
    table_state(table)
    with translate_table_errors(f"table {name}"):
        files = files_before(table, day)
        if files and not _replace(catalog, name, FileChange([], files)):
            raise Unavailable(f"a file of table {name} was replaced meanwhile", reason=CONFLICT, retry_after_s=1.0)
    return files


# Losses.


def accept_losses(catalog: Catalog, name: str, holes: Iterable[HoleRecord]) -> None:
    """Mark losses of the table as accepted, in one commit without rows. Raises as the table does."""
    given = list(holes)
    for _ in range(COMMIT_TRIES):
        table = load_table(catalog, name)
        state = table_state(table)
        if state is None:
            return
        try:
            with translate_table_errors(f"table {name}"):
                commit_files(table, FileChange([], []), state.accepting(given).properties())
        except Unavailable as error:
            if not is_conflict(error):
                raise
            continue
        return
    raise _changed(name)


# Snapshots.


@dataclass(frozen=True, slots=True)
class Expired:
    """snapshots: ids of the dropped ones. files: paths of the files that no other snapshot has."""

    snapshots: list[int]
    files: list[str]


def expirable(table: Table, before: datetime) -> Expired:
    """The snapshots that were made before a time, but for the current one, the last one with a state, and those that a
    branch or tag names."""
    own = own_snapshot(table)
    kept = {ref.snapshot_id for ref in table.metadata.refs.values()} | {None if own is None else own.snapshot_id}
    before_ms = before.timestamp() * 1000
    old: list[Snapshot] = []
    stay: list[Snapshot] = []
    for one in table.metadata.snapshots:
        (old if one.timestamp_ms < before_ms and one.snapshot_id not in kept else stay).append(one)
    with translate_table_errors(f"table {'.'.join(table.name())}"):
        known: dict[str, set[str]] = {}
        gone = {path for one in old for path in _files_of(table, one, known)}
        held = {path for one in stay for path in _files_of(table, one, known)} if gone else set()
    return Expired([one.snapshot_id for one in old], sorted(gone - held))


def expire(catalog: Catalog, name: str, before: datetime) -> Expired:
    """Drop these snapshots, and then delete their files. A file that a kill leaves behind is unread."""
    table = load_table(catalog, name)
    found = expirable(table, before)
    if not found.snapshots:
        return found
    with translate_table_errors(f"table {name}"):
        table.maintenance.expire_snapshots().by_ids(found.snapshots).commit()
        publish(load_table(catalog, name))
        for path in found.files:
            try:
                table.io.delete(path)
            except FileNotFoundError:
                log.info("a file of an expired snapshot was gone already", path=path)
    return found


def _files_of(table: Table, snapshot: Snapshot, known: dict[str, set[str]]) -> set[str]:
    """Manifest list, manifests and data files. known: data files by manifest, which snapshots share."""
    found = {snapshot.manifest_list}
    for manifest in snapshot.manifests(table.io):
        path = manifest.manifest_path
        if path not in known:
            entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            known[path] = {entry.data_file.file_path for entry in entries}
        found.add(path)
        found |= known[path]
    return found
