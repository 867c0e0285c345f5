"""`tsdb history backup` and `verify` write and check files of history and of compacted topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from tsdb.cli.history.settings import HISTORY_SETTINGS
from tsdb.cli.options.arguments import TableOrJson
from tsdb.cli.options.setting_options import with_settings
from tsdb.cli.terminal.output import note, print_json, print_table
from tsdb.cli.terminal.progress import progress_bar
from tsdb.config import CommonSettings, LoaderSettings
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


@with_settings(LoaderSettings, only=SETTINGS)
def backup(settings: LoaderSettings, folder: Folder, topics: Topics = True, output: TableOrJson = "table") -> None:
    """Write history and the compacted topics to a new folder, while all roles run.

    The manifest comes last, so a folder without it is no backup. The same command over the folder of an interrupted
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
        yield BackupSource(log, store, admin, group_of(settings, settings))


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
