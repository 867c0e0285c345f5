"""Heads for tests: small time scales, series by number, and records from plain Python samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.answer.answer import RawResult
from tsdb.codec.records.log_record import DecodedRecords, decode_records, encode_record, encode_tick
from tsdb.codec.records.series_record import decode_announcements, encode_announcement
from tsdb.head.head import Head
from tsdb.head.state import Applied, HeadLimits
from tsdb.model.details import SampleDetails
from tsdb.model.histograms import CUSTOM_BOUNDS, HistogramColumns, HistogramShape
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import SliceLengths, TimeSet

# Milliseconds in place of minutes: no rule of a head depends on the unit.
SMALL_TIMES = TimeSet("small", 400, 5, 15, 8, 10, 20, 200, 100_000)
SMALL_SLICES = SliceLengths(10, 40)
DAY_MS = 24 * 3600 * 1000

Sample = tuple[int, int, float]
"""(number of the series, ts_ms, value)."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record of the log. samples: in the record's order. tick: whether the record is the tick of an import. details:
    numbers of the samples' details, as `details_of` has them; empty where no sample has any."""

    offset: int
    broker_ms: int
    samples: tuple[Sample, ...] = ()
    tick: bool = False
    details: tuple[int, ...] = ()


def details_of(numbers: Sequence[int], values: NDArray[np.float64]) -> SampleDetails | None:
    """Details that follow from a number: 0 none, an odd one a start timestamp, one above 1 a histogram of its value."""
    found = np.array(numbers, np.int64)
    where = found > 1
    starts = np.where(found % 2 == 1, found * 1000, 0)
    of = np.full(len(found), -1, np.int64)
    of[where] = np.arange(where.sum())
    shape_of = (found[where] % 3 == 0).astype(np.int32)
    lengths = np.array([3, 2])[shape_of]
    ends = np.cumsum(lengths, dtype=np.int64)
    own = np.repeat(found[where], lengths) + np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)
    columns = HistogramColumns(
        SHAPES,
        shape_of,
        np.concatenate((np.zeros(1, np.int64), ends)),
        own.astype(np.float64),
        np.add.reduceat(own, ends - lengths).astype(np.float64) if len(ends) else np.zeros(0),
        values[where],
        np.zeros(len(ends)),
        (found[where] % 4).astype(np.uint8),
        found[where] % 5 == 0,
    )
    # Taken, because that leaves out what says nothing.
    return SampleDetails(starts, columns, of).take(np.arange(len(found)))


SHAPES = (
    HistogramShape(1, 0.5, ((0, 2),), ((1, 1),)),
    HistogramShape(CUSTOM_BOUNDS, positive=((0, 2),), bounds=(1.0, 2.0)),
)


def canonical_of(number: int) -> bytes:
    """Labels of a numbered series: three metrics on each instance."""
    return canonical_labels({"__name__": f"m_{number % 3}", "job": "test", "instance": f"i{number // 3}"})


def id_of(number: int) -> int:
    """Series id of series `number`."""
    return series_id(canonical_of(number))


def new_head(
    partition: int = 0,
    *,
    slices: SliceLengths = SMALL_SLICES,
    time_set: TimeSet = SMALL_TIMES,
    hold_ms: int = 300,
    coverage_start_ms: int = -(1 << 40),
    since_offset: int = 0,
    from_start: bool = True,
    limits: HeadLimits | None = None,
    series: int = 0,
) -> Head:
    """A head that knows the first `series` numbered series."""
    head = Head(
        partition,
        slices=slices,
        time_set=time_set,
        hold_ms=hold_ms,
        coverage_start_ms=coverage_start_ms,
        since_offset=since_offset,
        from_start=from_start,
        limits=limits or HeadLimits(fold_entries_min=1),
    )
    register(head, range(series))
    return head


def register(head: Head, numbers: Sequence[int], broker_ms: int = 1 << 60) -> None:
    """Announce numbered series to a head; by default so late that they never expire."""
    pairs = [announcement(number) for number in numbers]
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    records = decode_announcements(b"".join(keys), _starts(keys), b"".join(values), _starts(values))
    head.register(records, b"".join(values), np.full(len(pairs), broker_ms, np.int64))


def announcement(number: int, epoch: int = 0) -> tuple[bytes, bytes]:
    """Key and value that announce a numbered series."""
    canonical = canonical_of(number)
    return encode_announcement(id_of(number), epoch, PlacementRule().place(canonical).pack_id, canonical)


def refs_of(head: Head, numbers: Sequence[int]) -> NDArray[np.uint32]:
    """Refs of numbered series, in their order."""
    return head.index.table.find(np.array([id_of(number) for number in numbers], np.uint64))


def apply(head: Head, records: Sequence[Record]) -> Applied:
    """Apply records as one batch, resolved beforehand as the replay does."""
    decoded = decoded_of(records)
    head.unknown_ids(decoded)
    return head.apply(decoded, *positions_of(records))


def decoded_of(records: Sequence[Record]) -> DecodedRecords:
    """The records as the codec gives them; each is one pack, named by its series."""
    values = [encoded(record) for record in records]
    return decode_records(b"".join(values), _starts(values))


def positions_of(records: Sequence[Record]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(offsets, broker times) of records."""
    offsets = np.array([record.offset for record in records], np.int64)
    return offsets, np.array([record.broker_ms for record in records], np.int64)


def samples_of(raw: RawResult, numbers: Sequence[int]) -> dict[int, dict[int, float]]:
    """{number: {ts_ms: value}} of a result; series without samples are left out."""
    ends = np.cumsum(raw.counts.astype(np.int64))
    found: dict[int, dict[int, float]] = {}
    for number, start, end in zip(numbers, ends - raw.counts, ends, strict=True):
        times = raw.ts_ms[start:end]
        assert (np.diff(times) > 0).all(), f"times of series {number} do not ascend: {times}"
        if end > start:
            found[number] = dict(zip(times.tolist(), raw.values[start:end].tolist(), strict=True))
    return found


def bits(samples: dict[int, dict[int, float]]) -> dict[int, dict[int, bytes]]:
    """Values as bytes, so that NaN equals NaN and -0.0 does not equal 0.0."""
    return {
        number: {ts: np.float64(value).tobytes() for ts, value in by_time.items()}
        for number, by_time in samples.items()
    }


def encoded(record: Record) -> bytes:
    """The record as it lies in the log."""
    if not record.samples:
        return encode_tick(record.tick)
    ids = np.array([id_of(number) for number, _, _ in record.samples], np.uint64)
    pack = np.array([sum(number for number, _, _ in record.samples)], np.uint64)
    values = np.array([value for _, _, value in record.samples], np.float64)
    return encode_record(
        pack,
        np.array([len(ids)], np.uint32),
        ids,
        np.array([ts for _, ts, _ in record.samples], np.int64),
        values,
        details_of(record.details, values) if record.details else None,
    )


def _starts(parts: Sequence[bytes]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)
