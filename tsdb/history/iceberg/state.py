"""State: encodes and decodes what a snapshot of the table holds. Layout: docs/formats/iceberg.md, version 1. Pure.

Each snapshot of ours names its emission, the offsets of `chunks` up to which the table has every record, and the cut of
the log. It is committed together with the rows, so a retry finds what is there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.iceberg.catalog import VERSION, VERSION_PROPERTY
from tsdb.history.interface import HistoryHole
from tsdb.model.errors import ConfigMismatch, CorruptData, UnknownVersion
from tsdb.model.window import LONG_AGO_MS, TIME_MAX_MS

CHANGED, EXPIRED, CORRUPT = "tables_changed", "tables_expired", "tables_corrupt"
UNLISTED = "tables_holes_unlisted"
HOLES_MAX = 200  # More are counted, and the table's keeper names them in its log.


@dataclass(frozen=True, slots=True)
class LogCut:
    """The table has every sample of a partition below offset `position` of the log that is before
    emitted_through_ms."""

    position: int
    emitted_through_ms: int


@dataclass(frozen=True, slots=True)
class TableState:
    """emission: counts from 1. keeper: random id of the process that committed it. topic_id: the log's. next_offsets:
    by partition, all records of `chunks` (with chunks_id) below it are in the table. cut: by partition, absent until
    proven. holes: the losses; holes_total counts those beyond HOLES_MAX too. accepted: the ones of `losses` that an
    operator accepted."""

    emission: int
    keeper: str
    topic_id: str
    chunks_id: str
    next_offsets: Mapping[int, int]
    cut: Mapping[int, LogCut] = field(default_factory=dict)
    holes: tuple[HoleRecord, ...] = ()
    holes_total: int = 0
    accepted: tuple[HoleRecord, ...] = ()

    def losses(
        self, partitions: Collection[int] | None = None, start_ms: int = LONG_AGO_MS, end_ms: int = TIME_MAX_MS
    ) -> list[HistoryHole]:
        """The losses of these partitions (None: of all) that touch sample time [start_ms, end_ms). Those that are
        counted and not named may lie anywhere: one of all times stands for them, in each partition, with their number
        as its offset."""
        unlisted = self.holes_total - len(self.holes)
        found = list(self.holes)
        if unlisted:
            found += [
                HoleRecord(one, 0, LONG_AGO_MS, TIME_MAX_MS, UNLISTED, unlisted) for one in sorted(self.next_offsets)
            ]
        return [
            HistoryHole(one, accepted=one in self.accepted)
            for one in found
            if (partitions is None or one.partition in partitions) and one.start_ms < end_ms and one.end_ms > start_ms
        ]

    def accepting(self, holes: Iterable[HoleRecord]) -> TableState:
        """The same with these of `losses` accepted too."""
        given = {*self.accepted, *holes}
        return replace(self, accepted=tuple(one.hole for one in self.losses() if one.hole in given))

    def properties(self) -> dict[str, str]:
        """Properties of the snapshot."""
        cut = {str(number): [one.position, one.emitted_through_ms] for number, one in sorted(self.cut.items())}
        return {
            VERSION_PROPERTY: VERSION,
            "tsdb.emission": str(self.emission),
            "tsdb.keeper": self.keeper,
            "tsdb.topic-id": self.topic_id,
            "tsdb.chunks-topic-id": self.chunks_id,
            "tsdb.chunks-offsets": json.dumps({str(one): at for one, at in sorted(self.next_offsets.items())}),
            "tsdb.cut": json.dumps(cut),
            "tsdb.holes": _holes_text(self.holes),
            "tsdb.holes-total": str(self.holes_total),
            **({"tsdb.holes-accepted": _holes_text(self.accepted)} if self.accepted else {}),
        }


def table_state(table: Table) -> TableState | None:
    """The state of the table's rows; None for a table without a snapshot. Raises as own_snapshot, and CorruptData
    (tables_corrupt), UnknownVersion."""
    snapshot = own_snapshot(table)
    return None if snapshot is None else state_of(snapshot)


def own_snapshot(table: Table) -> Snapshot | None:
    """The newest snapshot of a keeper or of maintenance; None for a table without a snapshot.

    Snapshots of other programs that only rewrote files (operation `replace`) are passed over. Raises ConfigMismatch:
    tables_changed for any other, tables_expired when the snapshot before it is gone.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        return None
    while VERSION_PROPERTY not in _properties(snapshot):
        operation = None if snapshot.summary is None else snapshot.summary.operation
        if operation != Operation.REPLACE:
            raise ConfigMismatch(
                f"snapshot {snapshot.snapshot_id} of table {'.'.join(table.name())} ({_name(operation)}) is another"
                " program's, so its rows are not those of the log: roll the table back to the snapshot before it, or"
                " give another tables_name",
                reason=CHANGED,
            )
        parent = snapshot.parent_snapshot_id
        before = None if parent is None else table.snapshot_by_id(parent)
        if before is None:
            raise ConfigMismatch(
                f"the snapshot before {snapshot.snapshot_id} of table {'.'.join(table.name())}, which says what the"
                " rows hold, is expired: keep the last snapshot of a loader when expiring; give another tables_name",
                reason=EXPIRED,
            )
        snapshot = before
    return snapshot


def state_of(snapshot: Snapshot) -> TableState:
    """The state that a snapshot of ours names. Raises CorruptData (tables_corrupt), UnknownVersion."""
    values = _properties(snapshot)
    if values[VERSION_PROPERTY] != VERSION:
        raise UnknownVersion(
            f"snapshot {snapshot.snapshot_id} is of format {values[VERSION_PROPERTY]}; this process knows {VERSION}"
        )
    try:
        return _decoded(values)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise CorruptData(
            f"snapshot {snapshot.snapshot_id} does not say what it holds: {error!r}", reason=CORRUPT
        ) from error


def _decoded(values: Mapping[str, str]) -> TableState:
    offsets: dict[str, Any] = json.loads(values["tsdb.chunks-offsets"])
    cut: dict[str, Any] = json.loads(values["tsdb.cut"])
    return TableState(
        int(values["tsdb.emission"]),
        values["tsdb.keeper"],
        values["tsdb.topic-id"],
        values["tsdb.chunks-topic-id"],
        {int(number): int(at) for number, at in offsets.items()},
        {int(number): LogCut(*map(int, one)) for number, one in cut.items()},
        tuple(HoleRecord(*one) for one in json.loads(values["tsdb.holes"])),
        int(values["tsdb.holes-total"]),
        tuple(HoleRecord(*one) for one in json.loads(values.get("tsdb.holes-accepted", "[]"))),
    )


def _holes_text(holes: Iterable[HoleRecord]) -> str:
    return json.dumps(
        [[one.partition, one.pack_id, one.start_ms, one.end_ms, one.reason, one.record_offset] for one in holes]
    )


def _properties(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _name(operation: Operation | None) -> str:
    return "no summary" if operation is None else operation.value
