"""`tsdb history backup` and `verify` write and check files of history and of compacted topics.

`tsdb history restore` and `restore-topics` write a backup back into an empty history, or into topics created
anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.setting_options import HISTORY_SETTINGS, with_settings
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.cli.terminal.progress import progress_bar
from tsdb.config import CommonSettings, LoaderSettings
from tsdb.model.errors import ConfigMismatch
from tsdb.model.times import time_text

if TYPE_CHECKING:
    from tsdb.backup.backup import BackupSource
    from tsdb.backup.manifest import Manifest

SETTINGS = (
    *("log", "log_prefix", "time_set", "placement_labels", "load_group"),
    *(name for name in CommonSettings.model_fields if name.startswith("kafka_")),
    *HISTORY_SETTINGS,
)
COLUMNS = ("table", "files", "rows", "MiB", "from", "to")
MIB = 1 << 20

Folder = Annotated[
    str, typer.Argument(metavar="FOLDER", help="A path, or a URI of object storage, such as s3://bucket/folder.")
]
Topics = Annotated[
    bool, typer.Option("--topics/--no-topics", help="Also the records of chunks, series, meta and metadata.")
]

if TYPE_CHECKING:
    from tsdb.backup.folder import BackupFolder
    from tsdb.backup.manifest import Manifest
    from tsdb.history.interface import ChunkStore
    from tsdb.history.shared_settings import HistoryAdmin
    from tsdb.log.interface import Log

NOTHING_CHANGED = "nothing is changed; without --dry-run these rows are restored"

DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, and change nothing.")]


@with_settings(LoaderSettings, only=SETTINGS)
def backup(settings: LoaderSettings, folder: Folder, topics: Topics = True, output: TableOrJson = "table") -> None:
    """Write history and the compacted topics to a new folder, while all roles run.

    The manifest comes last, so a folder without it is not a backup. The same command over the folder of an interrupted
    backup writes the missing parts.
    """
    from tsdb.backup.backup import back_up
    from tsdb.backup.folder import BackupFolder
    from tsdb.backup.plan import TOPICS
    from tsdb.model.clock import SystemClock

    began = time.monotonic()
    with _source(settings) as source, progress_bar("backup", "parts") as (advance, expect):
        made = back_up(
            BackupFolder(folder),
            source,
            SystemClock(),
            topics=TOPICS if topics else (),
            expect=expect,
            advance=advance,
        )
    print_contents(folder, made, time.monotonic() - began, output)


def verify(folder: Folder, output: TableOrJson = "table") -> None:
    """Read every file of a backup, compare its checksum with the manifest, and list the contents."""
    from tsdb.backup.checks import check_files, read_manifest
    from tsdb.backup.folder import BackupFolder

    began = time.monotonic()
    place = BackupFolder(folder)
    manifest = read_manifest(place)
    with progress_bar("verify", "bytes") as (advance, expect):
        expect(sum(file.bytes for file in manifest.files))
        check_files(place, manifest.files, advance)
    print_contents(folder, manifest, time.monotonic() - began, output)


@contextmanager
def _source(settings: LoaderSettings) -> Iterator[BackupSource]:
    from tsdb.backup.backup import BackupSource
    from tsdb.history.open import open_history, open_history_admin
    from tsdb.log.open import open_log
    from tsdb.roles.loader import group_of
    from tsdb.roles.log import log_settings

    url, access = settings.required_history(), settings.history_settings()
    # A running standalone has the writer lock of an embedded log; a backup only reads.
    reading = replace(log_settings(settings), embedded_claim=False)
    with ExitStack() as stack:
        log = stack.enter_context(open_log(settings.log, prefix=settings.log_prefix, settings=reading))
        admin = stack.enter_context(open_history_admin(url, access))
        store = stack.enter_context(open_history(url, access))
        yield BackupSource(log, store, admin, group_of(settings))


def print_contents(
    folder: str,
    manifest: Manifest,
    seconds: float,
    output: str,
    *,
    tables: tuple[str, ...] | None = None,
    dry_run: bool = False,
) -> None:
    names = tables or tuple(dict.fromkeys(file.table for file in manifest.files))
    rows = [_row(manifest, name) for name in names]
    plan = manifest.plan
    if output == "json":
        values = {"folder": folder, "backup_id": plan.backup_id, "created_ms": plan.created_ms}
        loaded = {"loaded_partitions": len(plan.loaded), "partitions": plan.partitions}
        print_json({**values, **loaded, "tables": rows, "seconds": round(seconds, 3), "dry_run": dry_run})
        return
    print_table(COLUMNS, (_cells(row) for row in rows), right=COLUMNS[1:4])
    note(
        f"backup {plan.backup_id} of {time_text(plan.created_ms)}, progress of {len(plan.loaded)} of {plan.partitions}"
        f" partitions; {seconds:.1f} s"
    )


def _row(manifest: Manifest, name: str) -> dict[str, object]:
    files = manifest.of(name)
    bounds = [file.bounds for file in files if file.bounds is not None]
    return {
        "table": name,
        "files": len(files),
        "rows": manifest.rows(name),
        "bytes": sum(file.bytes for file in files),
        "min": min((low for low, _ in bounds), default=None),
        "max": max((high for _, high in bounds), default=None),
    }


def _cells(row: dict[str, object]) -> tuple[object, ...]:
    size, low, high = row["bytes"], row["min"], row["max"]
    assert isinstance(size, int)
    span = [time_text(end) if row["table"] == "chunks" and isinstance(end, int) else end for end in (low, high)]
    return row["table"], row["files"], row["rows"], f"{size / MIB:,.1f}", *span


class RestoreSettings(LoaderSettings):
    """Settings of a restore, which may be without a log."""

    log: str = ""


@with_settings(RestoreSettings, only=SETTINGS)
def restore(
    settings: RestoreSettings,
    folder: Folder,
    dry_run: DryRun = False,
    from_zero: Annotated[
        bool,
        typer.Option(
            "--from-zero",
            help="Restore no progress, as an old backup needs: loaders read both topics from their first record.",
        ),
    ] = False,
    detached: Annotated[
        bool,
        typer.Option("--detached", help="Restore rows without a log, to export them; makes the tables if necessary."),
    ] = False,
    replication: Annotated[
        int, typer.Option("--replication", min=1, help="Copies of each row, of tables that --detached makes.")
    ] = 3,
    output: TableOrJson = "table",
) -> None:
    """Restore history into the empty tables of `tsdb history create`. Loaders must be stopped.

    Every file, the log, the tables and the age of the backup are checked before the first row is written. Loaders then
    go on where the backup ends.
    """
    from tsdb.backup.checks import read_manifest
    from tsdb.backup.folder import BackupFolder
    from tsdb.backup.restore import TABLES

    if not (settings.log or detached):
        raise ConfigMismatch("log is required: --log, TSDB_LOG or the file", reason="log_url")
    began, place = time.monotonic(), BackupFolder(folder)
    manifest = read_manifest(place)
    if detached:
        _restore_detached(settings, place, manifest, replication, dry_run=dry_run)
    else:
        _restore(settings, place, manifest, dry_run=dry_run, from_zero=from_zero)
    print_contents(folder, manifest, time.monotonic() - began, output, tables=TABLES, dry_run=dry_run)
    if dry_run:
        note(NOTHING_CHANGED)


@with_settings(LoaderSettings, only=SETTINGS)
def restore_topics(
    settings: LoaderSettings,
    folder: Folder,
    topic: Annotated[
        list[str],
        typer.Option("--topic", metavar="NAME", help="Only this topic, without prefix; may be repeated."),
    ] = [],  # noqa: B006  # Typer copies it.
    dry_run: DryRun = False,
    output: TableOrJson = "table",
) -> None:
    """Restore compacted topics that `tsdb topics create` made anew. All roles must be stopped.

    The log itself, `metrics`, must be the one of the backup. Loaders then read chunks and series from the start, and
    the chunk stage goes back to its progress of the backup.
    """
    from tsdb.backup.checks import check_files, read_manifest
    from tsdb.backup.folder import BackupFolder
    from tsdb.backup.tables import topic_table
    from tsdb.backup.topics import check_restore_topics, topic_files
    from tsdb.backup.topics import restore_topics as append_all
    from tsdb.log.interface import CHUNKS, META, METADATA, SERIES
    from tsdb.roles.loader import group_of

    unknown = sorted(set(topic) - {CHUNKS, SERIES, META, METADATA})
    if unknown:
        raise typer.BadParameter(f"{unknown[0]} is no compacted topic; choose from chunks, series, meta, metadata")
    topics = topic or [CHUNKS, SERIES, META, METADATA]
    began, place, group = time.monotonic(), BackupFolder(folder), group_of(settings)
    manifest = read_manifest(place)
    with _opened_log(settings) as log:
        check_restore_topics(manifest, log, topics, group)
        files = topic_files(manifest, topics)
        size = sum(file.bytes for file in files)
        with _bar("check", size) as advance:
            check_files(place, files, advance)
        if not dry_run:
            with _bar("restore", size) as advance:
                append_all(place, manifest, log, topics, group, advance)
    names = tuple(topic_table(name).name for name in topics)
    print_contents(folder, manifest, time.monotonic() - began, output, tables=names, dry_run=dry_run)
    if dry_run:
        note(NOTHING_CHANGED)


def _restore(
    settings: RestoreSettings, place: BackupFolder, manifest: Manifest, *, dry_run: bool, from_zero: bool
) -> None:
    from tsdb.backup.restore import RestoreTarget, check_restore, restore_progress
    from tsdb.log.open import open_topics
    from tsdb.model.clock import SystemClock
    from tsdb.roles.loader import group_of
    from tsdb.roles.log import log_settings

    clock = SystemClock()
    with ExitStack() as stack:
        log = stack.enter_context(_opened_log(settings))
        topics = stack.enter_context(
            open_topics(settings.log, prefix=settings.log_prefix, settings=log_settings(settings))
        )
        store, admin = stack.enter_context(_history(settings))
        target = RestoreTarget(store, admin, log, topics, group_of(settings))
        check_restore(manifest, target, clock.now_ms(), from_zero=from_zero)
        _check_files(place, manifest)
        if dry_run:
            return
        _restore_rows(place, manifest, store)
        if not from_zero:
            restore_progress(manifest, target, clock)


def _restore_detached(
    settings: RestoreSettings, place: BackupFolder, manifest: Manifest, replication: int, *, dry_run: bool
) -> None:
    """Without progress, so that a later loader starts from zero."""
    from tsdb.backup.checks import check_empty, check_settings
    from tsdb.log.interface import METRICS

    with _history(settings) as (store, admin):
        if not admin.differences():
            check_settings(manifest, admin)
            check_empty(manifest.plan.topic_ids[METRICS], store)
        _check_files(place, manifest)
        if dry_run:
            return
        admin.create(manifest.plan.shared, replication=replication)
        check_settings(manifest, admin)
        check_empty(manifest.plan.topic_ids[METRICS], store)
        _restore_rows(place, manifest, store)


def _check_files(place: BackupFolder, manifest: Manifest) -> None:
    from tsdb.backup.checks import check_files
    from tsdb.backup.restore import TABLES

    files = manifest.of(*TABLES)
    with _bar("check", sum(file.bytes for file in files)) as advance:
        check_files(place, files, advance)


def _restore_rows(place: BackupFolder, manifest: Manifest, store: ChunkStore) -> None:
    from tsdb.backup.restore import TABLES, restore_rows
    from tsdb.model.clock import SystemClock

    with _bar("restore", sum(file.bytes for file in manifest.of(*TABLES))) as advance:
        restore_rows(place, manifest, store, SystemClock(), advance)


@contextmanager
def _bar(action: str, size: int) -> Iterator[Callable[[int], None]]:
    with progress_bar(action, "bytes") as (advance, expect):
        expect(size)
        yield advance


@contextmanager
def _opened_log(settings: LoaderSettings) -> Iterator[Log]:
    """The log, with the writer lock of an embedded one: no role may run over it."""
    from tsdb.log.open import open_log
    from tsdb.roles.log import log_settings

    with open_log(settings.log, prefix=settings.log_prefix, settings=log_settings(settings)) as log:
        yield log


@contextmanager
def _history(settings: LoaderSettings) -> Iterator[tuple[ChunkStore, HistoryAdmin]]:
    from tsdb.history.open import open_history, open_history_admin

    url, access = settings.required_history(), settings.history_settings()
    with open_history_admin(url, access) as admin, open_history(url, access) as store:
        yield store, admin
