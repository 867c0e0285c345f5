"""Snapshot content: encodes a head image with its position in the log as a JSON document and named arrays, and decodes
it.

Names, types and fields: docs/formats/snapshot.md, versions 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from tsdb.codec.columns.details import EncodedDetails, Tag, decode_details
from tsdb.head.details import DetailBucket, DetailEntries
from tsdb.head.exemplars import ExemplarsImage
from tsdb.head.head_image import HeadImage, ProgressImage
from tsdb.head.slices.images import ContentsImage, LateImage, OpenImage, RingImage
from tsdb.head.slices.sealed_slice import SealedSlice
from tsdb.head.state import Hole
from tsdb.index.index import IndexImage
from tsdb.index.interned import InternedImage
from tsdb.index.label_arena import LabelsImage
from tsdb.index.series_rows import RowsImage
from tsdb.model.errors import CorruptData

Group = tuple[str, list[tuple[str, NDArray[Any]]]]
"""Name of a part of the head, and its arrays by name."""

# The arrays of each part and their types, little-endian.
ROWS = dict(zip(RowsImage._fields, ("u8", "u8", "u4", "i8", "u1", "u4", "u4"), strict=True))
INTERNED = {"data": "u1", "ends": "i8", "hashes": "u4"}
LABELS = {"seeds": "u8", "name_of": "u4", "entries": "u4", "start": "u4", "length": "u2", "label_bytes": "u4"}
OPEN = {"ref": "u4", "ts": "i4", "value": "f8"}
LATE = {"ref": "u4", "ts_ms": "i8", "value": "f8", "order": "i8"}
RING = {
    "first_offsets": "i8",
    "last_offsets": "i8",
    "ends": "i8",
    "ref": "u4",
    "offset": "i8",
    "ts_ms": "i8",
    "value": "f8",
}
EXEMPLARS = dict(zip(ExemplarsImage._fields, ("u8", "i8", "f8", "i8", "u1", "i8"), strict=True))
DETAILS = {
    "ref": "u4",
    "ts_ms": "i8",
    "value": "f8",
    "order": "i8",
    "start_times": "u1",
    "histograms": "u1",
    "bucket_counts": "i8",
}
SEALED = {
    "column_end": "u4",
    "axis_of": "u4",
    "data": "u1",
    "axis_end": "u4",
    "axis_count": "u4",
    "axis_data": "u1",
    "refs": "u4",
    "slot_of": "u4",
    "order_end": "u4",
    "order_data": "u1",
}
OPTIONAL = ("refs", "order_end")  # Absent in a slice that does without them.
SEALED_NUMBERS = ("start_ms", "end_ms", "samples", "newest_offset", "newest_broker_ms", "order_max")


@dataclass(frozen=True, slots=True)
class SnapshotPosition:
    """Position of a head in the log. applied_broker_ms, applied_hash: broker time and record_hash of the record at
    applied_offset. series_next_offset: first announcement that the index lacks. written_ms: wall clock of the store."""

    next_offset: int
    applied_offset: int
    applied_broker_ms: int
    applied_hash: int
    series_next_offset: int
    written_ms: int


class Arrays(Protocol):
    """The arrays of a snapshot. Both raise CorruptData for an array that is absent, damaged, or of another type."""

    def arrays(self, group: str, types: Mapping[str, str]) -> list[NDArray[Any]]:
        """Copy the arrays of a group, in the order of `types`."""

    def mapped(self, group: str, types: Mapping[str, str]) -> list[NDArray[Any] | None]:
        """Map the arrays of a group from the file, read-only, in the order of `types`. None for an array of OPTIONAL
        that is absent."""


def record_hash(value: bytes | None) -> int:
    """The xxh3-64 hash of a record. A CRC-32C would be the same for all records, because they end with their own
    CRC-32C."""
    return xxhash.xxh3_64_intdigest(value or b"")


def groups_of(image: HeadImage) -> Iterator[Group]:
    """All arrays of an image. Groups whose name begins with `slice` are mapped at a start, the others read."""
    contents, index = image.contents, image.index
    yield "index.rows", _named(ROWS, index.rows)
    yield "index.labels", _named(LABELS, index.labels)
    yield "index.names", _named(INTERNED, index.labels.names)
    yield "index.pairs", _named(INTERNED, index.labels.pairs)
    for number, open_ in enumerate(contents.open):
        yield f"open.{number}", _named(OPEN, open_)
    yield "late", _named(LATE, contents.late)
    yield "ring", _named(RING, contents.ring)
    if contents.ring.details is not None:
        yield "ring.details", _named(DETAILS, _DetailsArrays.of(_entries_of(contents.ring)))
    if image.exemplars is not None:
        yield "exemplars", _named(EXEMPLARS, image.exemplars)
    for number, bucket in enumerate(contents.details):
        yield f"details.{number}", _named(DETAILS, _DetailsArrays.of(bucket.whole()))
    for kind, slices in (("sealed", contents.sealed), ("below", contents.below)):
        for number, slice_ in enumerate(slices):
            yield f"slice.{kind}.{number}", _named(SEALED, slice_)


def document_of(image: HeadImage, place: SnapshotPosition, key: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a snapshot without arrays, for JSON."""
    contents = image.contents
    # A snapshot of a head without exemplars has the bytes that it had before there were any.
    exemplars = {} if image.exemplars is None else {"exemplars": len(image.exemplars.series_id)}
    # So has one of a head without details.
    details: dict[str, Any] = {"details": len(contents.details)} if contents.details else {}
    if contents.ring.details is not None:
        details["ring_details"] = True
    return {
        **exemplars,
        **details,
        "key": key,
        "place": list(astuple(place)),
        "since_offset": contents.since_offset,
        "from_start": contents.from_start,
        "clock": list(contents.clock),
        "holes": [list(astuple(hole)) for hole in contents.holes],
        "usual_entries": contents.usual_entries,
        "open": [[one.start_ms, one.newest_offset, one.newest_broker_ms] for one in contents.open],
        "ring_lost_through": contents.ring.lost_through,
        "sealed": [_numbers(slice_) for slice_ in contents.sealed],
        "below": [_numbers(slice_) for slice_ in contents.below],
        "progress": list(image.progress),
        "forgotten_since_compaction": image.index.forgotten_since_compaction,
    }


def place_of(document: Mapping[str, Any]) -> SnapshotPosition:
    return SnapshotPosition(*(int(number) for number in document["place"]))


def image_from(document: Mapping[str, Any], arrays: Arrays) -> HeadImage:
    """The image that groups_of and document_of were made of. Raises CorruptData."""
    place = place_of(document)
    watermark_ms, open_from_ms, coverage_ms = document["clock"]
    contents = ContentsImage(
        since_offset=document["since_offset"],
        next_offset=place.next_offset,
        applied_offset=place.applied_offset,
        from_start=document["from_start"],
        clock=(watermark_ms, open_from_ms, coverage_ms),
        holes=tuple(Hole(*hole) for hole in document["holes"]),
        usual_entries=document["usual_entries"],
        open=tuple(
            OpenImage(*numbers, *arrays.arrays(f"open.{number}", OPEN))
            for number, numbers in enumerate(document["open"])
        ),
        late=LateImage(*arrays.arrays("late", LATE)),
        ring=_ring(document, arrays),
        sealed=_slices("sealed", document["sealed"], arrays),
        below=_slices("below", document["below"], arrays),
        details=tuple(
            DetailBucket.of(_DetailsArrays(*arrays.arrays(f"details.{number}", DETAILS)).entries())
            for number in range(document.get("details", 0))
        ),
    )
    exemplars = ExemplarsImage(*arrays.arrays("exemplars", EXEMPLARS)) if document.get("exemplars") else None
    return HeadImage(contents, ProgressImage(*document["progress"]), _index(document, arrays), exemplars)


def _ring(document: Mapping[str, Any], arrays: Arrays) -> RingImage:
    first, last, ends, ref, offset, ts_ms, value = arrays.arrays("ring", RING)
    image = RingImage(document["ring_lost_through"], first, last, ends, ref, offset, ts_ms, value)
    if not document.get("ring_details"):
        return image
    entries = _DetailsArrays(*arrays.arrays("ring.details", DETAILS)).entries()
    if len(entries) != len(image.ref):
        raise CorruptData(f"details of {len(entries)} samples of a ring that has {len(image.ref)}")
    return image._replace(details=entries.details)


def _entries_of(ring: RingImage) -> DetailEntries:
    return DetailEntries(ring.ref, ring.ts_ms, ring.value, ring.offset, ring.details)


class _DetailsArrays(NamedTuple):
    """Entries as arrays. start_times, histograms: sections of docs/formats/details.md, empty without one; a group is a
    stretch of entries of one series. bucket_counts: one number, the counts in the histograms."""

    ref: NDArray[np.uint32]
    ts_ms: NDArray[np.int64]
    value: NDArray[np.float64]
    order: NDArray[np.int64]
    start_times: NDArray[np.uint8]
    histograms: NDArray[np.uint8]
    bucket_counts: NDArray[np.int64]

    @classmethod
    def of(cls, entries: DetailEntries) -> _DetailsArrays:
        found: dict[Tag, bytes] = {}
        counts, details = 0, entries.details
        if details is not None:
            groups = _groups(entries.refs)
            columns = entries.ts_ms, entries.values, groups
            found = dict(EncodedDetails(details, *columns, dense=False).sections(0, len(groups) - 1))
            counts = 0 if details.histograms is None else len(details.histograms.buckets)
        starts, histograms = (np.frombuffer(found.get(tag, b""), np.uint8) for tag in (Tag.STARTS, Tag.HISTOGRAMS))
        plain = entries.refs, entries.ts_ms, entries.values, entries.orders
        return cls(*plain, starts, histograms, np.array([counts], np.int64))

    def entries(self) -> DetailEntries:
        """Raises CorruptData."""
        given = ((Tag.STARTS, self.start_times), (Tag.HISTOGRAMS, self.histograms))
        sections = [(tag, data.tobytes()) for tag, data in given if len(data)]
        details = None
        if sections:
            columns, most = (self.ts_ms, self.value, _groups(self.ref)), int(self.bucket_counts[0])
            details = decode_details(sections, *columns, bucket_counts_max=most)
        return DetailEntries(self.ref, self.ts_ms, self.value, self.order, details)


def _groups(refs: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Where the entries of each series begin, and the number of entries."""
    firsts = np.flatnonzero(np.diff(refs, prepend=refs[:1] + 1)) if len(refs) else np.empty(0, np.int64)
    return np.append(firsts, len(refs)).astype(np.int64)


def _index(document: Mapping[str, Any], arrays: Arrays) -> IndexImage:
    seeds, *rest = arrays.arrays("index.labels", LABELS)
    names, pairs = (InternedImage(*arrays.arrays(f"index.{name}", INTERNED)) for name in ("names", "pairs"))
    labels = LabelsImage(seeds, names, pairs, *rest)
    return IndexImage(RowsImage(*arrays.arrays("index.rows", ROWS)), labels, document["forgotten_since_compaction"])


def _slices(kind: str, numbers: list[list[int]], arrays: Arrays) -> tuple[SealedSlice, ...]:
    found = []
    for number, values in enumerate(numbers):
        named: dict[str, Any] = dict(zip(SEALED_NUMBERS, values, strict=True))
        columns: dict[str, Any] = dict(zip(SEALED, arrays.mapped(f"slice.{kind}.{number}", SEALED), strict=True))
        found.append(SealedSlice(**named, **columns))
    return tuple(found)


def _numbers(slice_: SealedSlice) -> list[int]:
    return [int(getattr(slice_, name)) for name in SEALED_NUMBERS]


def _named(types: Mapping[str, str], holder: object) -> list[tuple[str, NDArray[Any]]]:
    found = []
    for name, type_ in types.items():
        array: NDArray[Any] | None = getattr(holder, name)
        if array is not None:
            assert array.dtype == np.dtype(f"<{type_}"), f"{name} has type {array.dtype}; the format has {type_}"
            found.append((name, array))
    return found
