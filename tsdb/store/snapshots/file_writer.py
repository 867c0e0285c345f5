"""Writes a snapshot file: into a new file, which is synchronised with the disk and then renamed. The old file is never
changed.

Layout: docs/formats/snapshot.md, versions 1 and 2.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.crc32c import crc32c
from tsdb.store.snapshots.content import Group

MAGIC = b"TSDBHEAD"
VERSION, VERSION_DETAILS = 1, 2  # The second has details, so that a reader that knows none passes it over.
HEADER = struct.Struct("<8sIIQQI")  # Magic, version, directory bytes and offset, file bytes, directory CRC; then a CRC.
HEADER_BYTES = 64
PAGE_BYTES = 4096  # A mapped group begins at a page; all arrays begin at multiples of ARRAY_BYTES.
ARRAY_BYTES = 8
# Bytes after a mapped group. Decoders load whole words, which may begin in an array and end behind it.
SLACK_BYTES = 64
MAPPED = "slice"  # First word in the names of groups that are mapped at a start.
# Bytes written between two calls of `pause`. This also bounds the bytes that a sync writes at once.
PIECE_BYTES = 4 << 20
SUFFIX = ".writing"

_sync_data = getattr(os, "fdatasync", os.fsync)  # Not every system has the cheaper function.

Pause = Callable[[], None]


def write_file(path: Path, document: Mapping[str, Any], groups: Iterable[Group], pause: Pause) -> int:
    """Replace the file by a new one. Returns its bytes. pause: called between pieces; its errors end the write.

    Raises OSError. After this error or one of pause, the former file is unchanged and no other file is left.

    """
    temporary = path.with_name(path.name + SUFFIX)
    try:
        with temporary.open("wb", buffering=0) as file:
            size = _Writing(file, pause).write(document, groups)
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)
    return size


class _Writing:
    def __init__(self, file: BinaryIO, pause: Pause) -> None:
        self._file = file
        self._pause = pause
        self._at = 0
        self._unpaused = 0

    def write(self, document: Mapping[str, Any], groups: Iterable[Group]) -> int:
        self._put(bytes(HEADER_BYTES))
        directory = {name: self._group(name, arrays) for name, arrays in groups}
        data = json.dumps({**document, "arrays": directory}).encode()
        self._align(ARRAY_BYTES)
        offset = self._at
        self._put(data)
        version = VERSION_DETAILS if {"details", "ring_details"} & document.keys() else VERSION
        fields = HEADER.pack(MAGIC, version, len(data), offset, self._at, crc32c(data))
        # The header was zeros so far: a file with a header is whole.
        os.pwrite(self._file.fileno(), fields + struct.pack("<I", crc32c(fields)), 0)
        return self._at

    def _group(self, name: str, arrays: list[tuple[str, NDArray[Any]]]) -> dict[str, list[object]]:
        """name, type, elements, offset, CRC of each array."""
        mapped = name.startswith(MAPPED)
        if mapped:
            self._align(PAGE_BYTES)
        entries: dict[str, list[object]] = {}
        for field, array in arrays:
            self._align(ARRAY_BYTES)
            data = np.ascontiguousarray(array).view(np.uint8)
            entries[field] = [array.dtype.str[1:], len(array), self._at, crc32c(data)]
            self._put(data.data)
        if mapped:
            self._put(bytes(SLACK_BYTES))
            _release_pages(arrays)
        return entries

    def _align(self, unit: int) -> None:
        self._put(bytes(-self._at % unit))

    def _put(self, data: bytes | memoryview) -> None:
        for start in range(0, len(data), PIECE_BYTES):
            piece = data[start : start + PIECE_BYTES]
            while len(piece):
                written = self._file.write(piece)
                piece, self._at, self._unpaused = piece[written:], self._at + written, self._unpaused + written
            if self._unpaused >= PIECE_BYTES:
                # Without it a later sync, also one of another file, would wait for all of this file.
                _sync_data(self._file.fileno())
                self._unpaused = 0
                self._pause()


def _release_pages(arrays: list[tuple[str, NDArray[Any]]]) -> None:
    """Take the pages of arrays that are mapped from a former snapshot out of this process's memory again. They stay in
    the page cache, and a later read finds them there."""
    for _, array in arrays:
        region = array.base.obj if isinstance(array.base, memoryview) else None
        if isinstance(region, mmap.mmap):
            region.madvise(mmap.MADV_DONTNEED)
            return  # All arrays of a group are in one map.


def _sync_folder(folder: Path) -> None:
    """Make a rename durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
