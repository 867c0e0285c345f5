"""The folder of a backup, on any file system of Arrow. A file is written once; its checksum is computed during the
write."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.fs as pafs

from tsdb.history.parquet.files import file_system, sync_folder, translate_file_errors

READ_BYTES = 1 << 20


class ChecksummedFile(io.RawIOBase):
    """A stream that counts the bytes written to it, and their SHA-256."""

    def __init__(self, stream: IO[bytes] | pa.NativeFile) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self.size = 0

    @property
    def sha256(self) -> str:
        """Checksum of all bytes so far, in hexadecimal digits."""
        return self._hash.hexdigest()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: object) -> int:
        view = memoryview(data)  # type: ignore[arg-type]  # Arrow passes buffers
        self._hash.update(view)
        self._stream.write(view)
        self.size += view.nbytes
        return view.nbytes


class BackupFolder:
    """Files below one folder, by their path in it. Raises Unavailable (disk_error) for an error of the file system."""

    def __init__(self, folder: str) -> None:
        """Raises InvalidRequest (bad_folder)."""
        self.name = folder
        self._system, self._root = file_system(folder)
        self._local = isinstance(self._system, pafs.LocalFileSystem)

    def is_empty(self) -> bool:
        """Whether the folder has no file, or does not exist."""
        with self._errors("looking into"):
            return not self._system.get_file_info(pafs.FileSelector(self._root, allow_not_found=True))

    def has(self, path: str) -> bool:
        """Whether the file exists."""
        with self._errors("looking into"):
            return bool(self._system.get_file_info(self._at(path)).type == pafs.FileType.File)

    def read(self, path: str) -> bytes:
        """The content of a small file."""
        with self._errors("reading"), self._system.open_input_stream(self._at(path)) as stream:
            return bytes(stream.read())

    def put(self, path: str, data: bytes) -> None:
        """Write a small file, durable on return. It appears whole or not at all."""
        new = f"{path}.new"
        with self.writing(new) as file:
            file.write(data)
        with self._errors("writing"):
            self._system.move(self._at(new), self._at(path))
            if self._local:
                sync_folder(Path(self._at(path)).parent)

    @contextmanager
    def writing(self, path: str) -> Iterator[ChecksummedFile]:
        """A new file, durable after the block. It replaces a file of that name from an interrupted run."""
        at = self._at(path)
        with self._errors("writing"):
            self._system.create_dir(at.rpartition("/")[0], recursive=True)
            with self._system.open_output_stream(at) as stream:
                file = ChecksummedFile(stream)
                yield file
            if self._local:
                self._sync(Path(at))

    @contextmanager
    def reading(self, path: str) -> Iterator[pa.NativeFile]:
        """A file for reads at any position."""
        with self._errors("reading"), self._system.open_input_file(self._at(path)) as file:
            yield file

    def size(self, path: str) -> int | None:
        """Bytes of a file; None when it is missing."""
        with self._errors("looking into"):
            info = self._system.get_file_info(self._at(path))
        return info.size if info.type == pafs.FileType.File else None

    def pieces(self, path: str) -> Iterator[bytes]:
        """The bytes of a file, in pieces."""
        with self._errors("reading"), self._system.open_input_stream(self._at(path)) as stream:
            while piece := stream.read(READ_BYTES):
                yield piece

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    @contextmanager
    def _errors(self, action: str) -> Iterator[None]:
        with translate_file_errors(f"{action} backup {self.name}"):
            yield

    @staticmethod
    def _sync(path: Path) -> None:
        with path.open("rb") as written:
            os.fsync(written.fileno())
        sync_folder(path.parent)
