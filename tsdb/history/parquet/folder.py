"""Layout: names the files in a Parquet sink's folder. docs/formats/parquet.md, version 1. Pure except loaded_files.

Creates and checks the folder of a Parquet sink.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Self

from tsdb.codec.chunk.key import ChunkKey
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.history.parquet.files import put_json, read_json, translate_file_errors
from tsdb.history.rows import chunk_key_columns
from tsdb.history.shared_settings import HINT
from tsdb.model.errors import InvalidRequest

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class SinkLayout:
    """Paths of a sink, all below `folder`."""

    folder: Path

    @property
    def shared(self) -> Path:
        """File of the shared settings that the sink was created with."""
        return self.folder / "_shared.json"

    @property
    def series(self) -> Path:
        """Folder of the announcements' files."""
        return self.folder / "series"

    def day(self, window_start_ms: int) -> Path:
        """Folder of the samples of all windows that start on one UTC day; named as a Hive partition."""
        day = (EPOCH + timedelta(milliseconds=window_start_ms)).date().isoformat()
        return self.folder / "samples" / f"day={day}"

    def loaded(self, topic_id: str, partition: int) -> Path:
        """Path of the file of one partition's `loaded`."""
        return self._loaded_folder(topic_id) / f"{partition}.json"

    def loaded_files(self, topic_id: str) -> list[Path]:
        """The `loaded` files of all partitions, sorted by path."""
        return sorted(self._loaded_folder(topic_id).glob("[0-9]*.json"))

    def hole(self, hole: HoleRecord) -> Path:
        """Path of the file of one loss."""
        name = f"{hole.partition}-{hole.start_ms}-{hole.end_ms}-{hole.pack_id:016x}-{hole.record_offset}.json"
        return self.folder / "_holes" / name

    def _loaded_folder(self, topic_id: str) -> Path:
        # Topic ids are base64url or hex, so they contain no path separator.
        return self.folder / "_loaded" / topic_id


def check_key(key: ChunkKey) -> None:
    """Raises InvalidRequest (key_out_of_range) for a key that fits no row, or whose day is outside the years 1-9999."""
    chunk_key_columns(key)
    try:
        EPOCH + timedelta(milliseconds=key.window_start_ms)
    except OverflowError:
        raise InvalidRequest(f"{key} is of no day from the year 1 to 9999", reason="key_out_of_range") from None


class ParquetAdmin:
    """HistoryAdmin of one Parquet folder."""

    def __init__(self, folder: Path) -> None:
        self._layout = SinkLayout(folder)

    def create(self, shared: Mapping[str, str], *, replication: int | None = None, ttl_days: int | None = None) -> bool:
        """See HistoryAdmin; replication is ignored, a folder has no copies."""
        if ttl_days is not None:
            raise InvalidRequest(f"{self._layout.folder} keeps its files: there is no TTL", reason="no_ttl")
        if self._layout.shared.exists():
            return False
        with translate_file_errors(f"creating {self._layout.folder}"):
            put_json(self._layout.shared, shared)
        return True

    def differences(self) -> list[str]:
        if self._layout.shared.exists():
            return []
        return [f"{self._layout.shared} is missing: {HINT}"]

    def shared(self) -> dict[str, str]:
        with translate_file_errors("reading shared settings"):
            return {name: str(value) for name, value in read_json(self._layout.shared).items()}

    def close(self) -> None:
        """Does nothing: no resource is held open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
