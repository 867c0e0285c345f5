"""Settings of `tsdb standalone`, which runs every role in one process over embedded files in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from tsdb.config.chunker import ChunkerFields
from tsdb.config.common import CommonSettings
from tsdb.config.gateway import GatewayFields
from tsdb.config.loader import LoaderFields
from tsdb.config.promql import PromqlFields, UiFields
from tsdb.config.ruler import RulerFields
from tsdb.config.store import StoreFields, check_slices
from tsdb.config.tables import TablesFields

DATA_DIR = Path("tsdb-data")


def embedded_places(folder: Path) -> dict[str, str]:
    """The settings `log` and `history` of a standalone with this data folder."""
    return {"log": f"sqlite:///{folder / 'log.sqlite'}", "history": f"sqlite:///{folder / 'history.sqlite'}"}


class StandaloneSettings(
    GatewayFields,
    StoreFields,
    ChunkerFields,
    LoaderFields,
    TablesFields,
    UiFields,
    PromqlFields,
    RulerFields,
    CommonSettings,
):
    """The role `standalone`. `log`, `history` and `snapshot_dir` default to paths in `data_dir`; an empty `history` or
    `snapshot_dir` switches it off."""

    data_dir: Path = Field(DATA_DIR, description="Folder of the embedded log and history; created when missing.")

    @classmethod
    def derived(cls, values: dict[str, Any]) -> dict[str, Any]:
        folder = Path(values.get("data_dir") or cls.model_fields["data_dir"].default)
        return {**embedded_places(folder), "snapshot_dir": str(folder / "snapshots"), **values}

    @model_validator(mode="after")
    def _check_slices(self) -> StandaloneSettings:
        check_slices(self, self.times)
        return self

    @model_validator(mode="after")
    def _check_tables(self) -> StandaloneSettings:
        if self.tables and not self.history:
            raise ValueError("tables needs a history: without one there are no chunks, and the table would stay empty")
        return self
