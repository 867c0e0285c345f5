"""Layout: names of a Parquet sink's folders and files. docs/formats/parquet.md, version 1. Pure but for listing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tsdb.codec.chunk_marker import HoleRecord


@dataclass(frozen=True, slots=True)
class Layout:
    """Below `folder`."""

    folder: Path

    @property
    def shared(self) -> Path:
        """The settings it was made for."""
        return self.folder / "_shared.json"

    @property
    def series(self) -> Path:
        """Folder of announcements."""
        return self.folder / "series"

    def window(self, window_start_ms: int) -> Path:
        """Folder of the samples of one window, a partition as Hive names them."""
        day = datetime.fromtimestamp(window_start_ms / 1000, UTC).date().isoformat()
        return self.folder / "samples" / f"day={day}" / f"window={window_start_ms}"

    def loaded(self, topic_id: str, partition: int) -> Path:
        """File of what is loaded of one partition."""
        return self._loaded_folder(topic_id) / f"{partition}.json"

    def loaded_files(self, topic_id: str) -> list[Path]:
        """All of them."""
        return sorted(self._loaded_folder(topic_id).glob("[0-9]*.json"))

    def hole(self, hole: HoleRecord) -> Path:
        """File of one loss."""
        name = f"{hole.partition}-{hole.start_ms}-{hole.end_ms}-{hole.pack_id:016x}-{hole.record_offset}.json"
        return self.folder / "_holes" / name

    def _loaded_folder(self, topic_id: str) -> Path:
        # Ids of topics are base64url or hex: no part of a path.
        return self.folder / "_loaded" / topic_id
