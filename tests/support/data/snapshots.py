"""Snapshots for tests: writes a head to a file and reads it back, with a log position that no test checks."""

from __future__ import annotations

from pathlib import Path

from support.data.heads import SMALL_SLICES, SMALL_TIMES, new_head
from tsdb.head.head import Head
from tsdb.head.head_image import HeadImage, image_of, restore
from tsdb.head.state import HeadLimits
from tsdb.model.time_set import SliceLengths, TimeSet
from tsdb.store.snapshots.content import SnapshotPosition, document_of, groups_of, image_from
from tsdb.store.snapshots.file_reader import SnapshotFile
from tsdb.store.snapshots.file_writer import write_file

HOLD_MS = 300


def place_of_image(image: HeadImage) -> SnapshotPosition:
    """A log position whose other numbers are invented."""
    applied = image.contents.applied_offset
    return SnapshotPosition(image.contents.next_offset, -1 if applied is None else applied, 7, 8, 9, 10)


def write_head(head: Head, path: Path) -> int:
    """Write a head's snapshot; returns its bytes."""
    image = image_of(head)
    return write_file(path, document_of(image, place_of_image(image), {}), groups_of(image), lambda: None)


def read_head(
    path: Path,
    *,
    slices: SliceLengths = SMALL_SLICES,
    time_set: TimeSet = SMALL_TIMES,
    hold_ms: int = HOLD_MS,
    limits: HeadLimits | None = None,
) -> Head:
    """The head of a snapshot, with these settings. Raises as SnapshotFile."""
    with SnapshotFile(path) as file:
        image = image_from(file.document, file)
    contents = image.contents
    head = new_head(
        slices=slices,
        time_set=time_set,
        hold_ms=hold_ms,
        coverage_start_ms=contents.clock[2],
        since_offset=contents.since_offset,
        from_start=contents.from_start,
        limits=limits,
    )
    restore(head, image)
    return head
