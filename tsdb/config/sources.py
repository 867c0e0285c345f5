"""Reads settings that are not flags, from TSDB_* variables and a TOML file, which all roles share.

Keys of other roles are ignored here; `load` refuses keys that no role has.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from tsdb.model.errors import InvalidRequest

ENV_PREFIX = "TSDB_"


def environment() -> dict[str, str]:
    """TSDB_* variables by setting name. An empty variable counts as absent."""
    return {
        key.removeprefix(ENV_PREFIX).lower(): value
        for key, value in os.environ.items()
        if key.startswith(ENV_PREFIX) and value
    }


def read_file(path: Path) -> dict[str, Any]:
    """Keys of a TOML file. Raises InvalidRequest (config_file) when it cannot be read or parsed."""
    try:
        return tomllib.loads(path.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidRequest(f"config file {path} cannot be read: {error}", reason="config_file") from error


class _Shared(PydanticBaseSettingsSource):
    """A source that passes on only the values of the role's fields."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self._values().get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return {key: value for key, value in self._values().items() if key in self.settings_cls.model_fields}

    def _values(self) -> dict[str, Any]:
        raise NotImplementedError


class SharedEnvironment(_Shared):
    """The TSDB_* variables as a source."""

    def _values(self) -> dict[str, Any]:
        return dict(environment())


class SharedFile(_Shared):
    """The TOML file of the flag or variable `config`; empty without one."""

    def __init__(
        self, settings_cls: type[BaseSettings], flags: PydanticBaseSettingsSource, variables: SharedEnvironment
    ) -> None:
        super().__init__(settings_cls)
        path = flags().get("config") or variables().get("config")
        self._read = read_file(Path(path)) if path else {}

    def _values(self) -> dict[str, Any]:
        return self._read
