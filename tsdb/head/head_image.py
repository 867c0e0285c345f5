"""Head image: everything that a head is at one moment, and the head that goes on from it.

A head made from an image answers as the head that the image was taken of, and keeps doing so with the same records,
announcements and rounds of maintenance. Caches are not in it. The writer thread takes an image in some microseconds
and 50 bytes of copies a series: all else is shared, because it only grows at its end or is replaced as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tsdb.head.exemplars import ExemplarsImage
from tsdb.head.head import Head
from tsdb.head.slices.images import ContentsImage
from tsdb.index.index import IndexImage


class ProgressImage(NamedTuple):
    """Values that maintenance and expiry need in their next round, under the same names as there. None: no value
    yet."""

    late_seen: int
    fold_watermark_ms: int
    next_offset_seen: int
    rested_at: int
    checked_at_ms: int | None
    release_in: int | None


@dataclass(frozen=True, slots=True)
class HeadImage:
    """A head at one moment. exemplars: None without any."""

    contents: ContentsImage
    progress: ProgressImage
    index: IndexImage
    exemplars: ExemplarsImage | None = None


def image_of(head: Head) -> HeadImage:
    """The image of a head now. The writer thread calls it."""
    maintenance, expiry = head.progress
    return HeadImage(
        head.contents.image(), ProgressImage(*maintenance, *expiry), head.index.image(), head.exemplars.image()
    )


def restore(head: Head, image: HeadImage) -> None:
    """Restore an image into an empty head, which has the settings of the imaged head and no other user yet."""
    head.index.restore(image.index)
    head.contents.restore(image.contents, head.index.refs_size)
    if image.exemplars is not None:
        head.exemplars.restore(image.exemplars)
    seen, fold_ms, offset_seen, rested_at, checked_at_ms, release_in = image.progress
    head.progress = (seen, fold_ms, offset_seen, rested_at), (checked_at_ms, release_in)
