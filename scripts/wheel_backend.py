"""The build backend: setuptools, which needs the dependencies of the package to compile the kernels of a wheel.

An editable install compiles nothing and needs none of them.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  # The other hooks are setuptools' own.


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:  # type: ignore[no-redef]
    """Requirements of `build_wheel`, from the pyproject.toml of the current folder."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    return [*build_meta.get_requires_for_build_wheel(config_settings), *project["dependencies"]]
