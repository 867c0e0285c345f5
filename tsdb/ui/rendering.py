"""Rendering: HTML from the templates. Each text in them is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tsdb.ui.files import not_installed, url_of

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent / "templates"


def rendered(template: str, values: Mapping[str, Any]) -> bytes:
    """A whole page. Raises Unavailable (ui_not_installed)."""
    return _environment().get_template(template).render(values).encode(errors="replace")


@cache
def _environment() -> Environment:
    # The first page of a process imports the library; a process without visitors never does.
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
    except ImportError as error:
        raise not_installed() from error
    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["file"] = url_of
    return made
