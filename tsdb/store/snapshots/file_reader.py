"""Reads a snapshot file: checks it as a whole, reads parts into memory, and maps sealed slices.

Checksums are computed over bytes that were read, not mapped: a file that cannot be read is then an error and no
signal, and no mapped page counts as memory of the process before a read of samples needs it.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.crc32c import crc32c
from tsdb.model.errors import CorruptData, UnknownVersion
from tsdb.store.snapshots.content import OPTIONAL
from tsdb.store.snapshots.file_writer import HEADER, HEADER_BYTES, MAGIC, SLACK_BYTES, VERSION, VERSION_DETAILS
from tsdb.store.snapshots.reasons import DAMAGED, HALF_WRITTEN
from tsdb.store.snapshots.reasons import VERSION as OTHER_VERSION


class SnapshotFile:
    """An open snapshot: `document` at once, arrays on request. A context manager; mapped arrays outlive it.

    Raises FileNotFoundError; CorruptData (half_written, damaged), UnknownVersion (version).
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        try:
            self.bytes = os.fstat(self._file.fileno()).st_size
            self.document = self._read_document()
        except BaseException:
            self._file.close()
            raise

    def arrays(self, group: str, types: Mapping[str, str]) -> list[NDArray[Any]]:
        """See content.Arrays for the contract."""
        found = [self._read(group, name, type_) for name, type_ in types.items()]
        if any(array is None for array in found):
            raise _damaged(f"group {group} lacks an array")
        return [array for array in found if array is not None]

    def mapped(self, group: str, types: Mapping[str, str]) -> list[NDArray[Any] | None]:
        """See content.Arrays. Memory beside the mapping: the largest array, while it is checked."""
        for name, type_ in types.items():
            if self._read(group, name, type_) is None and name not in OPTIONAL:
                raise _damaged(f"group {group} has no array {name}")
        entries = {name: self._entry(group, name, type_) for name, type_ in types.items()}
        known = [entry for entry in entries.values() if entry is not None]
        # Pages of this machine may be larger than those of the format: then the map begins before the group.
        first = min(offset for offset, _, _ in known)
        start = first - first % mmap.ALLOCATIONGRANULARITY
        end = max(offset + count * type_.itemsize for offset, count, type_ in known) + SLACK_BYTES
        if end > self.bytes:
            raise _damaged(f"group {group} ends after the file")
        region = mmap.mmap(self._file.fileno(), end - start, access=mmap.ACCESS_READ, offset=start)
        return [
            None if entry is None else np.frombuffer(region, entry[2], entry[1], entry[0] - start)
            for entry in entries.values()
        ]

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read_document(self) -> dict[str, Any]:
        header = self._bytes(0, HEADER.size + 4).tobytes()
        if not any(header):
            raise CorruptData("the file has no header: its write was cut off", reason=HALF_WRITTEN)
        magic, version, size, offset, file_bytes, crc = HEADER.unpack_from(header)
        if magic != MAGIC:
            raise _damaged("the file does not begin as a snapshot")
        if version not in (VERSION, VERSION_DETAILS):
            known = f"{VERSION} and {VERSION_DETAILS}"
            raise UnknownVersion(f"format version is {version}; known: {known}", reason=OTHER_VERSION)
        if struct.unpack_from("<I", header, HEADER.size)[0] != crc32c(header[: HEADER.size]):
            raise _damaged("the header's checksum does not fit")
        if file_bytes != self.bytes:
            raise CorruptData(f"the file has {self.bytes} bytes; its header says {file_bytes}", reason=HALF_WRITTEN)
        directory = self._bytes(offset, size)
        if crc32c(directory) != crc:
            raise _damaged("the directory's checksum does not fit")
        document: dict[str, Any] = json.loads(directory.tobytes())
        return document

    def _entry(self, group: str, name: str, type_: str) -> tuple[int, int, np.dtype[Any]] | None:
        """(offset, elements, type) of an array, within the file; None when it is absent."""
        entry = self.document["arrays"][group].get(name)
        if entry is None:
            return None
        found, count, offset, _ = entry
        dtype = np.dtype(f"<{type_}")
        if found != type_ or min(count, offset) < 0 or offset + count * dtype.itemsize > self.bytes:
            raise _damaged(f"array {group}.{name} of {count} x {found} at {offset} is not in the file, or not {type_}")
        return offset, count, dtype

    def _read(self, group: str, name: str, type_: str) -> NDArray[Any] | None:
        """An array, read and checked; None when it is absent."""
        entry = self._entry(group, name, type_)
        if entry is None:
            return None
        offset, count, dtype = entry
        data = self._bytes(offset, count * dtype.itemsize)
        if crc32c(data) != self.document["arrays"][group][name][3]:
            raise _damaged(f"the checksum of array {group}.{name} does not fit")
        array: NDArray[Any] = data.view(dtype)
        return array

    def _bytes(self, offset: int, size: int) -> NDArray[np.uint8]:
        if offset + size > self.bytes:
            raise CorruptData(f"bytes [{offset}, {offset + size}) of {self.bytes} are missing", reason=HALF_WRITTEN)
        data = np.empty(size, np.uint8)
        done = 0
        while done < size:
            count = os.preadv(self._file.fileno(), [data.data[done:]], offset + done)
            if not count:
                raise CorruptData(f"the file ends at byte {offset + done}", reason=HALF_WRITTEN)
            done += count
        return data


def _damaged(message: str) -> CorruptData:
    return CorruptData(message, reason=DAMAGED)


assert HEADER.size + 4 <= HEADER_BYTES
