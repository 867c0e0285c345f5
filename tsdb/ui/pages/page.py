"""Page: one HTML page of the server, and how it is answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tsdb.api.prometheus.answer import Representation
from tsdb.api.prometheus.call import ApiCall
from tsdb.ui.headers import HTML, UNSTORED
from tsdb.ui.rendering import rendered
from tsdb.ui.sources import UiOptions, UiSources


@dataclass(frozen=True, slots=True)
class PageCall:
    """One request for a page, on a thread of the lookups. call: parameters, running queries and sources of the API."""

    call: ApiCall
    sources: UiSources
    options: UiOptions


@dataclass(frozen=True, slots=True)
class Page:
    """path: path in the URL. title: title in the navigation; "" keeps the page out of it. template: a file of
    tsdb/ui/templates that extends base.html. values: returns the variables of the template; it may raise any
    TsdbError."""

    path: str
    title: str
    template: str
    values: Callable[[PageCall], Mapping[str, Any]]


def answered(page: Page, all_pages: Sequence[Page], asked: PageCall) -> Representation:
    """The HTML of a page."""
    navigation = [(one.path, one.title, one.path == page.path) for one in all_pages if one.title]
    values = {
        "title": page.title,
        "navigation": navigation,
        "role": asked.sources.role,
        "has_tokens": asked.options.has_tokens,
        **page.values(asked),
    }
    return Representation(iter((rendered(page.template, values),)), HTML, UNSTORED)
