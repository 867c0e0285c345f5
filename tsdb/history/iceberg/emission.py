"""Emission: adds the samples of some chunks to the table as one snapshot, which says what it then holds.

Late samples, folds and imports get their own files. A row that the table has already, in the same or a newer version,
is left out. A file with older versions is written again without them, in the same commit; a new (series, timestamp)
replaces nothing, so few files are written again. A reader needs no merge: docs/decisions/table-versions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from tsdb.codec.chunk.chunk import Fragment
from tsdb.history.iceberg.catalog import CONFLICT, buckets_of, publish, translate_table_errors
from tsdb.history.iceberg.files import TableFiles, write_group, write_without
from tsdb.history.iceberg.rows import BucketRows, groups_of
from tsdb.history.iceberg.state import TableState
from tsdb.model.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Emitted:
    """samples: rows added. repeated: given rows that the table had. replaced: rows of older versions taken out.
    files_added, files_replaced: files of the commit. unlabelled: samples of series that were never announced."""

    samples: int
    repeated: int
    replaced: int
    unlabelled: int
    files_added: int
    files_replaced: int


@dataclass(frozen=True, slots=True)
class FileChange:
    """Files of one commit."""

    added: Sequence[DataFile]
    removed: Sequence[DataFile]


def emit(
    table: Table,
    fragments: Sequence[Fragment],
    labels: Callable[[Iterable[int]], list[bytes | None]],
    state: TableState,
) -> Emitted:
    """Commit the samples, and the state that the table has with them, on top of the snapshot that `table` has.

    Raises Unavailable (tables_conflict) if another snapshot came first, or if the outcome is unknown. The table then
    has nothing or all of the emission, and its state says which.
    """
    with translate_table_errors(f"table {'.'.join(table.name())}"):
        buckets = buckets_of(table)
        assert buckets is not None, "the table was checked when it was loaded"
        groups = groups_of(fragments, labels, buckets) if fragments else []
        change, emitted = _write(table, groups)
        commit_files(table, change, state.properties())
    return emitted


def _write(table: Table, groups: Sequence[BucketRows]) -> tuple[FileChange, Emitted]:
    added: list[DataFile] = []
    removed: list[DataFile] = []
    given = samples = replaced = unlabelled = 0
    if groups:
        first_ms = min(int(group.fragment.ts_ms.min()) for group in groups)
        last_ms = max(int(group.fragment.ts_ms.max()) for group in groups)
        files = TableFiles(table, first_ms, last_ms)
    for group in groups:
        given += group.fragment.samples
        found = files.overlap(group)
        for file, rows in found.replaced:
            replaced += len(rows)
            removed.append(file)
            rest = write_without(table, file, rows)
            added += [] if rest is None else [rest]
        kept = group if found.fresh.all() else group.keep(found.fresh) if found.fresh.any() else None
        if kept is not None:
            added.append(write_group(table, kept))
            samples += kept.fragment.samples
            unlabelled += sum(
                int(kept.fragment.sample_start[at + 1] - kept.fragment.sample_start[at])
                for at, one in enumerate(kept.canonical)
                if not one
            )
    emitted = Emitted(samples, given - samples, replaced, unlabelled, len(added), len(removed))
    return FileChange(added, removed), emitted


def commit_files(table: Table, change: FileChange, properties: Mapping[str, str]) -> None:
    """Make one commit, on top of exactly the snapshot of `table`, and publish it.

    properties: those of the new snapshot. Raises as emit, with the errors of pyiceberg.

    pyiceberg would move a refused commit on top of the new snapshot and try again, which would add the rows of one
    emission twice. So its retries are switched off for this call.
    """
    no_retries = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    here = Table(
        table.name(),
        table.metadata.model_copy(update={"properties": no_retries}),
        table.metadata_location,
        table.io,
        table.catalog,
    )
    with here.transaction() as transaction:
        update = transaction.update_snapshot(snapshot_properties=dict(properties))
        producer = update.overwrite() if change.removed else update.merge_append()
        with producer as snapshot:
            for file in change.added:
                snapshot.append_data_file(file)
            for file in change.removed:
                snapshot.delete_data_file(file)
    publish(here)


def is_conflict(error: Exception) -> bool:
    """Whether another commit came first, or the outcome is unknown."""
    return isinstance(error, Unavailable) and error.reason == CONFLICT
