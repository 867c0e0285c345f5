"""Creates and checks the folder of a Parquet sink."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tsdb.history.parquet.files import put_json, read_json, translate_file_errors
from tsdb.history.parquet.layout import SinkLayout
from tsdb.history.shared_settings import HINT
from tsdb.model.errors import InvalidRequest


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
