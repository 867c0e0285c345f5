"""Stores one group of appends within a transaction: offsets, broker times, faults. Called only by the writer.

Faults that an embedded log injects on request: the worst that real brokers do, repeatable by a seed.
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from tsdb.log.interface import Appended, Headers, OnDone, TopicPartition
from tsdb.log.sqlite.arrivals import CommittedRows, Row
from tsdb.log.sqlite.database import OFFSET_BITS, Lane, check_lane, find_lanes
from tsdb.log.sqlite.values import LaneCoder, LaneCoders
from tsdb.log.topics import CREATE_TIME
from tsdb.model.errors import InvalidRequest, TsdbError, Unavailable

INSERT = "INSERT INTO records (id, broker_ms, latest_ms, key, coding, value, headers) VALUES (?, ?, ?, ?, ?, ?, ?)"

TableRow = tuple[int, int, int, bytes | None, int | None, bytes | None, str | None]


class Fate(Enum):
    """Outcome of one append, with or without a fault."""

    STORED = "stored and acknowledged"
    ACK_LOST = "stored, but answered Unavailable"
    FAILED = "not stored, and answered Unavailable"


@dataclass(slots=True)
class FaultPlan:
    """Shares are probabilities in [0, 1], drawn per append, or per group of appends where noted.

    gap_share: up to gap_max offsets are skipped after the record. ack_lost_share, failed_share: see Fate.
    step_back_share: per group, the broker's clock stands step_back_ms behind. slow_share: per group, the answer takes
    slow_s longer. One thread draws: the log's writer.
    """

    seed: int = 0
    gap_share: float = 0.0
    gap_max: int = 3
    ack_lost_share: float = 0.0
    failed_share: float = 0.0
    step_back_share: float = 0.0
    step_back_ms: int = 0
    slow_share: float = 0.0
    slow_s: float = 0.0
    _random: random.Random = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def gap(self) -> int:
        """Number of offsets to skip after a record."""
        return self._random.randint(1, self.gap_max) if self._happens(self.gap_share) else 0

    def fate(self) -> Fate:
        """Outcome of the next append."""
        if self._happens(self.failed_share):
            return Fate.FAILED
        return Fate.ACK_LOST if self._happens(self.ack_lost_share) else Fate.STORED

    def broker_ms(self, now_ms: int) -> int:
        """Broker time of the next group."""
        return now_ms - self.step_back_ms if self._happens(self.step_back_share) else now_ms

    def delay_s(self) -> float:
        """Extra delay of the next group, in seconds."""
        return self.slow_s if self._happens(self.slow_share) else 0.0

    def _happens(self, share: float) -> bool:
        return share > 0 and self._random.random() < share


@dataclass(frozen=True, slots=True)
class Append:
    """One queued record. topic_id: the incarnation that the caller meant. weight: bytes of key and value, counted
    against the queue's bound."""

    topic: str
    topic_id: str
    partition: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int | None
    on_done: OnDone
    weight: int


@dataclass(slots=True)
class _Cursor:
    """Next offset and time of one lane within a group of appends, and what it stored: rows for readers, and bytes."""

    lane: Lane
    create_time: bool
    keyed: bool
    coder: LaneCoder | None
    next_offset: int
    latest_ms: int
    rows: list[Row] = field(default_factory=list)
    size: int = 0


Answer = Appended | TsdbError


def store_group(
    connection: sqlite3.Connection, appends: Sequence[Append], now_ms: int, faults: FaultPlan, coders: LaneCoders
) -> tuple[list[Answer], list[CommittedRows]]:
    """Insert all records. Returns one answer each, and what is stored, valid once the transaction is committed."""
    cursors: dict[TopicPartition, _Cursor | TsdbError] = {}
    topics: dict[str, dict[int, Lane]] = {}
    rows: list[TableRow] = []
    answers: list[Answer] = []
    for append in appends:
        place = (append.topic, append.partition)
        if place not in cursors:
            if append.topic not in topics:
                topics[append.topic] = find_lanes(connection, append.topic)
            cursors[place] = _open(connection, append, topics[append.topic], coders)
        cursor = cursors[place]
        if isinstance(cursor, TsdbError):
            answers.append(cursor)
            continue
        answers.append(_place(connection, append, cursor, rows, now_ms, faults))
    connection.executemany(INSERT, rows)
    written = [(place, cursor) for place, cursor in cursors.items() if isinstance(cursor, _Cursor)]
    connection.executemany(
        "UPDATE lanes SET next_offset = ?, latest_ms = ? WHERE lane = ?",
        [(cursor.next_offset, cursor.latest_ms, cursor.lane.number) for _, cursor in written],
    )
    stored = [
        CommittedRows(place, at.lane.topic_id, at.lane.next_offset, at.next_offset, at.rows, at.size)
        for place, at in written
        if at.rows
    ]
    return answers, stored


def _open(
    connection: sqlite3.Connection, append: Append, lanes: dict[int, Lane], coders: LaneCoders
) -> _Cursor | TsdbError:
    try:
        lane = check_lane(append.topic, append.topic_id, append.partition, lanes)
    except TsdbError as error:
        return error
    create_time = lane.setting("message.timestamp.type") == CREATE_TIME
    latest_ms = lane.latest_ms if lane.latest_ms is not None else -(1 << 62)
    keyed = "compact" in (lane.setting("cleanup.policy") or "")
    # Records with a key are few, or are compressed by their writers.
    coder = None if keyed else coders.of(connection, lane)
    return _Cursor(lane, create_time, keyed, coder, lane.next_offset, latest_ms)


def _place(
    connection: sqlite3.Connection,
    append: Append,
    cursor: _Cursor,
    rows: list[TableRow],
    now_ms: int,
    faults: FaultPlan,
) -> Answer:
    if cursor.keyed and append.key is None:
        return InvalidRequest(
            f"topic {append.topic}, partition {append.partition}: a compacted topic takes no record without a key",
            reason="invalid_record",
        )
    fate = faults.fate()
    if fate is Fate.FAILED:
        return _fault("the append failed")
    broker_ms = append.timestamp_ms if cursor.create_time and append.timestamp_ms is not None else now_ms
    offset = cursor.next_offset
    # A gap follows its record, so that the log can also end in a gap, as after a transaction's marker.
    cursor.next_offset = offset + 1 + faults.gap()
    cursor.latest_ms = max(cursor.latest_ms, broker_ms)
    row_id = (cursor.lane.number << OFFSET_BITS) + offset
    headers = encode_headers(append.headers)
    coding, value = None, append.value
    if cursor.coder is not None:
        coding, value = cursor.coder.encode(connection, append.value, row_id)
    rows.append((row_id, broker_ms, cursor.latest_ms, append.key, coding, value, headers))
    cursor.rows.append((row_id, broker_ms, append.value, append.key, headers))
    cursor.size += append.weight
    return _fault("the answer was lost") if fate is Fate.ACK_LOST else Appended(append.partition, offset, broker_ms)


def _fault(what: str) -> Unavailable:
    return Unavailable(f"injected fault: {what}", reason="log_unavailable", retry_after_s=1.0)


def encode_headers(headers: Headers) -> str | None:
    """Headers as JSON text, or None without headers. Bytes are stored as Latin-1."""
    return json.dumps([[name, value.decode("latin-1")] for name, value in headers]) if headers else None


def decode_headers(text: str | None) -> Headers:
    """The headers in a text of encode_headers."""
    return [(name, value.encode("latin-1")) for name, value in json.loads(text)] if text else []
