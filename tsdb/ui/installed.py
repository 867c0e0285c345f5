"""Refuses pages when the installation lacks their libraries."""

from __future__ import annotations

from tsdb.model.errors import Unavailable


def not_installed() -> Unavailable:
    """The error of a page, a graph or a file that needs them."""
    return Unavailable(
        "the libraries of the pages are not installed: pip install 'kafka-tsdb[ui]', then restart",
        reason="ui_not_installed",
    )
