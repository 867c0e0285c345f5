"""Manifest and plan of a backup: the state of the log that it belongs to, and its files. Pure.

A plan is written before the first file, the manifest after the last one: a folder without a manifest is not a backup.
Layout: docs/formats/backup.md.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from tsdb.history.interface import Loaded, RowSplit
from tsdb.log.interface import Position
from tsdb.model.errors import CorruptData, UnknownVersion

FORMAT = "kafka-tsdb-backup"
VERSION = 1
MANIFEST, PLAN = "manifest.json", "plan.json"

Body = TypeVar("Body")


@dataclass(frozen=True, slots=True)
class LoaderPosition:
    """The commits of the loader in one partition; None without a commit.

    since_ms: a broker time that no record of the topic `chunks` from offset `chunks` on precedes.
    """

    chunks: Position | None
    series: Position | None
    since_ms: int


@dataclass(frozen=True, slots=True)
class BackupFile:
    """One Parquet file. table: name of the table of its rows. bounds: lowest and highest time or offset in it."""

    name: str
    table: str
    rows: int
    bytes: int
    sha256: str
    bounds: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class BackupPlan:
    """State at the start of a backup.

    topic_ids: the id of each topic. shared: settings of the history. loaded, positions: commits by partition. They are
    read in the order positions, loaded, rows, so the rows have everything that both claim. tokens: ranges of the
    chunks' row keys. parts: all parts of the backup. anew: by partition, the time in ms at which history was last
    loaded from zero; the rows of one backup are of one load.
    """

    backup_id: str
    created_ms: int
    topic_ids: Mapping[str, str]
    partitions: int
    shared: Mapping[str, str]
    loaded: Mapping[int, Loaded]
    positions: Mapping[int, LoaderPosition]
    tokens: tuple[RowSplit, ...]
    parts: tuple[str, ...]
    anew: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole backup. finished_ms: its end. files: in the order in which they were written."""

    plan: BackupPlan
    finished_ms: int
    files: tuple[BackupFile, ...]

    def of(self, *tables: str) -> list[BackupFile]:
        """The files with rows of these tables."""
        return [file for file in self.files if file.table in tables]

    def rows(self, *tables: str) -> int:
        """Number of rows of these tables."""
        return sum(file.rows for file in self.of(*tables))


def encode_plan(plan: BackupPlan) -> bytes:
    """The bytes of a plan file."""
    return _sealed(_plan_values(plan))


def decode_plan(data: bytes, where: str) -> BackupPlan:
    """Raises CorruptData (bad_manifest), UnknownVersion (newer_backup)."""
    return _decoded(data, where, _plan_of)


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest file."""
    files = [asdict(file) for file in manifest.files]
    return _sealed({"plan": _plan_values(manifest.plan), "finished_ms": manifest.finished_ms, "files": files})


def decode_manifest(data: bytes, where: str) -> Manifest:
    """Raises CorruptData (bad_manifest), UnknownVersion (newer_backup)."""
    return _decoded(
        data, where, lambda body: Manifest(_plan_of(body["plan"]), int(body["finished_ms"]), files_of(body["files"]))
    )


def encode_files(files: list[BackupFile]) -> bytes:
    """The bytes of the note about one finished part."""
    return _sealed({"files": [asdict(file) for file in files]})


def decode_files(data: bytes, where: str) -> tuple[BackupFile, ...]:
    """Raises CorruptData (bad_manifest), UnknownVersion (newer_backup)."""
    return _decoded(data, where, lambda body: files_of(body["files"]))


def files_of(values: list[dict[str, Any]]) -> tuple[BackupFile, ...]:
    """Files from their JSON objects. Raises KeyError, TypeError, ValueError."""
    return tuple(
        BackupFile(
            str(one["name"]),
            str(one["table"]),
            int(one["rows"]),
            int(one["bytes"]),
            str(one["sha256"]),
            None if one["bounds"] is None else (int(one["bounds"][0]), int(one["bounds"][1])),
        )
        for one in values
    )


def _plan_values(plan: BackupPlan) -> dict[str, Any]:
    return {
        "backup_id": plan.backup_id,
        "created_ms": plan.created_ms,
        "topic_ids": dict(plan.topic_ids),
        "partitions": plan.partitions,
        "shared": dict(plan.shared),
        "loaded": [asdict(loaded) for _, loaded in sorted(plan.loaded.items())],
        "positions": [{"partition": number, **asdict(one)} for number, one in sorted(plan.positions.items())],
        "tokens": [[tokens.after, tokens.through] for tokens in plan.tokens],
        "parts": list(plan.parts),
        "anew": {str(number): at_ms for number, at_ms in sorted(plan.anew.items())},
    }


def _plan_of(body: dict[str, Any]) -> BackupPlan:
    loaded = [Loaded(**one) for one in body["loaded"]]
    return BackupPlan(
        str(body["backup_id"]),
        int(body["created_ms"]),
        {str(topic): str(topic_id) for topic, topic_id in body["topic_ids"].items()},
        int(body["partitions"]),
        {str(name): str(value) for name, value in body["shared"].items()},
        {one.partition: one for one in loaded},
        {
            int(one["partition"]): LoaderPosition(
                _position(one["chunks"]), _position(one["series"]), int(one["since_ms"])
            )
            for one in body["positions"]
        },
        tuple(RowSplit(int(after), int(through)) for after, through in body["tokens"]),
        tuple(map(str, body["parts"])),
        {int(number): int(at_ms) for number, at_ms in body.get("anew", {}).items()},
    )


def _position(values: dict[str, Any] | None) -> Position | None:
    return None if values is None else Position(int(values["next_offset"]), str(values["metadata"]))


def _sealed(body: dict[str, Any]) -> bytes:
    text = _canonical(body)
    head = {"format": FORMAT, "version": VERSION, "sha256": hashlib.sha256(text).hexdigest()}
    return json.dumps({**head, "body": body}, sort_keys=True, indent=1).encode()


def _decoded(data: bytes, where: str, read: Callable[[dict[str, Any]], Body]) -> Body:
    try:
        values = json.loads(data)
        known = values["format"] == FORMAT
        version = values["version"]
        if known and isinstance(version, int) and version > VERSION:
            raise UnknownVersion(
                f"{where} is of version {version}; this release reads {VERSION}: restore it with the release that wrote"
                " it, or a later one",
                reason="newer_backup",
            )
        if known and version == VERSION and hashlib.sha256(_canonical(values["body"])).hexdigest() == values["sha256"]:
            return read(values["body"])
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise _damaged(where, str(error)) from error
    raise _damaged(where, "its checksum is wrong" if known else "it is of another format")


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def _damaged(where: str, why: str) -> CorruptData:
    return CorruptData(f"{where} is damaged: {why}; use another backup", reason="bad_manifest")
