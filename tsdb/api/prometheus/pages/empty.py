"""Pages about what this store does not have: scrapes. Each has an empty answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tsdb.api.prometheus.answer import Result, plain
from tsdb.api.prometheus.call import ApiCall


def empty(data: Any) -> Callable[[ApiCall], Result]:
    """A page that always has this answer."""
    return lambda call: plain(data)
