"""Selectors: parses the texts of `match[]` into matchers."""

from __future__ import annotations

from tsdb.api.prometheus.request.form import Form
from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import Matcher
from tsdb.selector.selectors import matchers_of, matches_empty

SELECTORS_MAX = 256  # Each is a read.


def selectors(form: Form) -> list[tuple[Matcher, ...]]:
    """The matchers of each `match[]`. Raises InvalidRequest."""
    texts = form.all("match[]")
    if len(texts) > SELECTORS_MAX:
        raise InvalidRequest(f"{len(texts)} match[] parameters; the limit is {SELECTORS_MAX}", reason="bad_selector")
    found = [matchers_of(text) for text in texts]
    if any(all(map(matches_empty, matchers)) for matchers in found):
        raise InvalidRequest("match[] must contain at least one non-empty matcher", reason="bad_selector")
    return found
