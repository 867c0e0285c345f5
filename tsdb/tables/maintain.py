"""Maintenance: joins small files of the table, drops old days, and old snapshots with the files that only they have.

All may run beside a keeper, and be killed at any point. They leave the state of the table as it is, so that a keeper
goes on with its commit. If the keeper commits first, a compaction goes on too, unless that commit replaced its files.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from tsdb.model.errors import Unavailable
from tsdb.ops.logs import get_logger
from tsdb.tables.catalog import CONFLICT, load_table, translate_table_errors
from tsdb.tables.emission import FileChange, commit_files, is_conflict
from tsdb.tables.files import write_blocks
from tsdb.tables.rows import BLOCK_ROWS
from tsdb.tables.state import own_snapshot, table_state

MIB = 1 << 20
SMALL_BYTES = 64 * MIB  # A file of at least this size is left as it is.
FILE_BYTES_TARGET = 256 * MIB
COMMIT_TRIES = 10
KEYS = ["metric", "series_id", "ts"]

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
    """Join the small files, one day and bucket a commit. Raises as the table does."""
    table = load_table(catalog, name)
    table_state(table)  # A table that another program changed is refused.
    with translate_table_errors(f"table {name}"):
        for (day, bucket), files in small_files(table, files_min).items():
            added = _joined(table, files, day, bucket)
            done = added is not None and _replace(catalog, name, FileChange(added, files))
            count = len(added) if added is not None and done else len(files)
            yield Joined(day, bucket, len(files), count, skipped=not done)


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
                commit_files(table, change, state)
        except Unavailable as error:
            if not is_conflict(error):
                raise
            continue
        return True
    raise Unavailable(f"table {name} changed {COMMIT_TRIES} times in a row", reason=CONFLICT, retry_after_s=1.0)


def _joined(table: Table, files: Sequence[DataFile], day: int, bucket: int) -> Files | None:
    """New files with all rows of these; None for files that are not sorted as ours. The keys of all rows are in memory,
    and of each file the row group that is being read."""
    with ExitStack() as stack:
        sources = [
            pq.ParquetFile(
                stack.enter_context(table.io.new_input(file.file_path).open()),
                read_dictionary=["metric", "tenant", "labels.key_value.key", "labels.key_value.value"],
            )
            for file in files
        ]
        keys = _sorted_keys(sources)
        if keys is None:
            return None
        of_file, row_bytes = keys, sum(file.file_size_in_bytes for file in files) / max(1, len(keys))
        rows_max = max(BLOCK_ROWS, int(FILE_BYTES_TARGET / max(row_bytes, 1e-9)))
        runs = [_Rows(source) for source in sources]
        return [
            write_blocks(table, _merged(runs, of_file[first : first + rows_max]), day, bucket)
            for first in range(0, len(of_file), rows_max)
        ]


def _sorted_keys(sources: Sequence[pq.ParquetFile]) -> NDArray[np.int32] | None:
    """For each row of the joined order the number of its file; None if the rows of a file are not in that order."""
    tables = [source.read(columns=KEYS) for source in sources]
    metrics = [found["metric"].cast(pa.string()).combine_chunks() for found in tables]
    names = sorted({name for found in metrics for name in found.unique().to_pylist()}, key=str.encode)
    rank = {name: at for at, name in enumerate(names)}
    ranks = []
    for found in metrics:
        coded = found.dictionary_encode()
        ranks.append(np.array([rank[one] for one in coded.dictionary.to_pylist()], np.int32)[coded.indices.to_numpy()])
    metric = np.concatenate(ranks)
    series = np.concatenate([found["series_id"].to_numpy() for found in tables])
    ts = np.concatenate([found["ts"].cast(pa.int64()).to_numpy() for found in tables])
    of_file = np.repeat(np.arange(len(tables), dtype=np.int32), [len(found) for found in tables])
    order = np.lexsort((ts, series, metric))
    joined = of_file[order]
    for number in range(len(tables)):
        # Rows of one file must come in the order that they have in it.
        if (np.diff(order[joined == number]) < 0).any():
            return None
    return joined


def _merged(runs: Sequence[_Rows], of_file: NDArray[np.int32]) -> Iterator[pa.Table]:
    """Tables of the rows in order: each block takes the next rows of each file, and sorts them into their places."""
    for first in range(0, len(of_file), BLOCK_ROWS):
        block = of_file[first : first + BLOCK_ROWS]
        counts = np.bincount(block, minlength=len(runs))
        taken = [runs[number].take(int(count)) for number, count in enumerate(counts) if count]
        # Row i of the block is the next row of its file.
        places = np.argsort(block, kind="stable")
        back = np.empty_like(places)
        back[places] = np.arange(len(places))
        yield pa.concat_tables(taken).unify_dictionaries().take(pa.array(back))


class _Rows:
    """The rows of a file, in order."""

    def __init__(self, source: pq.ParquetFile) -> None:
        self._source = source
        self._next_group = 0
        self._left: pa.Table | None = None

    def take(self, count: int) -> pa.Table:
        parts: list[pa.Table] = []
        while count:
            if self._left is None or not len(self._left):
                self._left = self._source.read_row_group(self._next_group)
                self._next_group += 1
            parts.append(self._left.slice(0, count))
            count -= len(parts[-1])
            self._left = self._left.slice(len(parts[-1]))
        return pa.concat_tables(parts)


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
