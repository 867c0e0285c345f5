"""The page of bounds has every setting that is a bound, with its default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tsdb.config import ROLES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "bounds.md").read_text()
IS_BOUND = re.compile(r"(_max|_bytes|_timeout_s)$")
UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}


def bounds() -> Iterator[tuple[str, int | float]]:
    """Name and default of each setting that is a bound, of all roles."""
    for settings in ROLES.values():
        for name, field in settings.model_fields.items():
            if IS_BOUND.search(name):
                yield name, field.default


def texts(name: str, default: float) -> set[str]:
    """The ways to write a default."""
    if "bytes" in name:
        unit = next(unit for unit, size in UNITS.items() if default % size == 0)
        return {f"{default // UNITS[unit]} {unit}"}
    return {f"{default:g}"} if isinstance(default, float) else {f"{default}", f"{default:,}"}


@pytest.mark.parametrize(("name", "default"), sorted(set(bounds())))
def test_a_bound_is_on_the_page_with_its_default(name: str, default: float) -> None:
    shown = re.findall(rf"`{name}` \(([\d,.]+(?: [KMG]?i?B)?)", PAGE)
    assert texts(name, default) & set(shown), (
        f"want `{name}` ({' or '.join(texts(name, default))}); the page has {shown}"
    )


def test_settings_on_the_page_exist() -> None:
    known = {name for settings in ROLES.values() for name in settings.model_fields}
    tables = [line for line in PAGE.partition("## Parallel consumer")[0].splitlines() if line.startswith("| ")]
    named = {name for line in tables for name in re.findall(r"`([a-z]+_[a-z_]+)`", line.split(" | ")[1])}
    assert named <= known
