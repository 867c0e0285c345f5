"""`tsdb history restore` and `restore-topics` write a backup back into an empty history, or into topics created
anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.history.backup import SETTINGS, Folder, print_contents
from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import note
from tsdb.cli.terminal.progress import progress_bar
from tsdb.config import LoaderSettings
from tsdb.model.errors import ConfigMismatch

if TYPE_CHECKING:
    from tsdb.backup.folder import BackupFolder
    from tsdb.backup.manifest import Manifest
    from tsdb.history.interface import ChunkStore
    from tsdb.history.shared_settings import HistoryAdmin
    from tsdb.log.interface import Log

NOTHING_CHANGED = "nothing is changed; without --dry-run these rows are restored"

DryRun = Annotated[bool, typer.Option("--dry-run", help="Check everything, and change nothing.")]


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
    began, place, group = time.monotonic(), BackupFolder(folder), group_of(settings, settings)
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
        target = RestoreTarget(store, admin, log, topics, group_of(settings, settings))
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

    with _history(settings) as (store, admin):
        if not admin.differences():
            check_settings(manifest, admin)
            check_empty(manifest, store)
        _check_files(place, manifest)
        if dry_run:
            return
        admin.create(manifest.plan.shared, replication=replication)
        check_settings(manifest, admin)
        check_empty(manifest, store)
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
