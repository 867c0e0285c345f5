"""The database of an embedded log: defines schema, connections, errors and lanes.

A `lane` is one partition of one incarnation of a topic; its number is never reused. A record's row id is lane and
offset in one integer, so that a lane's records lie together, in order, under the primary key.

A lane has a check of its topic's incarnation, and a lookup by time.

Broker times may step back; their running maximum (latest_ms) does not.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tsdb.log.checks import check_partition, wrong_topic
from tsdb.model.errors import ConfigMismatch
from tsdb.sqlite.database import configure, open_file
from tsdb.sqlite.errors import SqliteErrors

ERRORS = SqliteErrors(unavailable="log_unavailable", locked="log_locked")

# Each transaction writes a page of each lane again, so small pages make a small write-ahead file.
PAGE_BYTES = 4096
OFFSET_BITS = 44
OFFSET_MAX = (1 << OFFSET_BITS) - 1

SCHEMA = """
CREATE TABLE IF NOT EXISTS topics (topic TEXT PRIMARY KEY, topic_id TEXT NOT NULL, config TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lanes (
    lane INTEGER PRIMARY KEY AUTOINCREMENT,
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    low_offset INTEGER NOT NULL DEFAULT 0,
    next_offset INTEGER NOT NULL DEFAULT 0,
    latest_ms INTEGER,
    UNIQUE (topic, partition)
);
CREATE TABLE IF NOT EXISTS records (
    id INTEGER PRIMARY KEY,
    broker_ms INTEGER NOT NULL,
    latest_ms INTEGER NOT NULL,
    key BLOB,
    coding INTEGER,
    value BLOB,
    headers TEXT
);
CREATE TABLE IF NOT EXISTS dictionaries (
    lane INTEGER NOT NULL,
    number INTEGER NOT NULL,
    last_id INTEGER,
    data BLOB NOT NULL,
    PRIMARY KEY (lane, number)
);
CREATE TABLE IF NOT EXISTS commits (
    group_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    next_offset INTEGER NOT NULL,
    metadata TEXT NOT NULL,
    PRIMARY KEY (group_id, topic, partition)
) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Lane:
    """Row of one partition. latest_ms: highest broker time so far, None before the first record."""

    number: int
    topic_id: str
    config: str
    low_offset: int
    next_offset: int
    latest_ms: int | None

    @property
    def first_id(self) -> int:
        """Row id of offset 0."""
        return self.number << OFFSET_BITS

    @property
    def end_id(self) -> int:
        """One past the last row id that the lane can have."""
        return (self.number + 1) << OFFSET_BITS

    def setting(self, key: str) -> str | None:
        """Value of a setting of the topic, or None."""
        value: str | None = json.loads(self.config).get(key)
        return value


def connect(path: Path) -> sqlite3.Connection:
    """A connection to an existing log, for one thread at a time. Transactions are begun explicitly.

    Never creates a file, because a mistyped path would look like an empty log. Raises ConfigMismatch (log_missing).
    """
    if not path.is_file():
        raise _missing(path, "is not a file" if path.exists() else "does not exist")
    with ERRORS.translate(f"opening {path}"):
        connection = open_file(path, create=False)
        try:
            if not _has_schema(connection):
                raise _missing(path, "holds no log")
            _check_version(connection, path)
            configure(connection, PAGE_BYTES, auto_vacuum=True)
        except BaseException:
            connection.close()
            raise
    return connection


def create(path: Path) -> sqlite3.Connection:
    """See connect; creates folder, file and schema where they are missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigMismatch(f"the embedded log's folder cannot be made: {error}", reason="log_missing") from None
    if path.is_dir():
        raise _missing(path, "is a folder")
    with ERRORS.translate(f"making {path}"):
        connection = open_file(path, create=True)
        configure(connection, PAGE_BYTES, auto_vacuum=True)
        if not _has_schema(connection):
            connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
    return connection


def _has_schema(connection: sqlite3.Connection) -> bool:
    found: int = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'commits'").fetchone()[0]
    return found > 0


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    """Raises ConfigMismatch (log_version)."""
    columns = [row[1] for row in connection.execute("PRAGMA table_info(records)")]
    if "coding" not in columns:
        raise ConfigMismatch(
            f"embedded log {path} is of version 1; this program has version 2: let the program that wrote it export its"
            " samples with `tsdb query --output parquet`, and import them into a new log with `tsdb write`",
            reason="log_version",
        )


def _missing(path: Path, why: str) -> ConfigMismatch:
    return ConfigMismatch(
        f"embedded log {path} {why}: `tsdb topics create` and `tsdb standalone` make one", reason="log_missing"
    )


def find_lanes(connection: sqlite3.Connection, topic: str) -> dict[int, Lane]:
    """Lanes of a topic by partition; empty when there is no such topic."""
    rows = connection.execute(
        "SELECT partition, lane, topic_id, config, low_offset, next_offset, latest_ms"
        " FROM lanes JOIN topics USING (topic) WHERE topic = ? ORDER BY partition",
        (topic,),
    )
    return {row[0]: Lane(*row[1:]) for row in rows}


def check_lane(topic: str, topic_id: str, partition: int, lanes: Mapping[int, Lane]) -> Lane:
    """The lane of a partition. lanes: the current lanes. Raises WrongTopic (topic_deleted, topic_recreated) and
    InvalidRequest (unknown_partition)."""
    now_id = next(iter(lanes.values())).topic_id if lanes else None
    if now_id != topic_id:
        raise wrong_topic(topic, topic_id, now_id)
    check_partition(topic, partition, len(lanes))
    return lanes[partition]


def first_at(connection: sqlite3.Connection, lane: Lane, ms: int) -> int | None:
    """First offset with broker time >= ms, or None. A bisection over latest_ms, which rises with the offset."""
    low, high = lane.low_offset, lane.next_offset
    while low < high:
        middle = (low + high) // 2
        row = connection.execute(
            "SELECT id, latest_ms FROM records WHERE id >= ? AND id < ? ORDER BY id LIMIT 1",
            (lane.first_id + middle, lane.first_id + high),
        ).fetchone()
        if row is None or row[1] >= ms:
            high = middle
        else:
            low = (row[0] & OFFSET_MAX) + 1
    # A trim may have removed the record that raised the maximum: search for the first record that has the time itself.
    found = connection.execute(
        "SELECT id FROM records WHERE id >= ? AND id < ? AND broker_ms >= ? ORDER BY id LIMIT 1",
        (lane.first_id + low, lane.end_id, ms),
    ).fetchone()
    return None if found is None else int(found[0]) & OFFSET_MAX
