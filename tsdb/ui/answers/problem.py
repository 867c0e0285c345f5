"""Problem: shows an error to people, with the text of the API, the position in the expression, and the next step."""

from __future__ import annotations

import re
from typing import Any

from tsdb.api.prometheus.errors import ErrorType, Failure
from tsdb.promql.evaluate.vectors.block import SAME_LABELS

_PLACE = re.compile(r'(?:invalid parameter "query": )?(\d+):(\d+): parse error: (.*)', re.DOTALL)
SIGNED_OUT = "You are not signed in, or the token is no longer valid here."
_HOLE = "(reason: hole"
_NEXT = {
    ErrorType.BAD_DATA: "Correct the expression and run it again.",
    ErrorType.EXECUTION: "Correct the expression and run it again.",
    ErrorType.TIMEOUT: "Ask for fewer series or a shorter range, or run it again when the server has less to do.",
    ErrorType.CANCELED: "Run it again.",
    ErrorType.UNAVAILABLE: "Run it again in a moment; the page of the partitions shows what is not ready.",
    ErrorType.NOT_FOUND: "Open the explorer again.",
    ErrorType.UNAUTHORIZED: "Sign in; the page then comes back as it is.",
    ErrorType.INTERNAL: "The log of the server has the details.",
}
# The next step of an error of the evaluation, by a part of its text; the first that fits.
_FITTING = (
    (_HOLE, 'Choose "accept losses" in the panel; the answer then names what may be missing.'),
    (
        "(reason: out_of_coverage",
        "Ask for a later range: memory no longer has this one, and no history answers for it.",
    ),
    (
        "many-to-many",
        "Make one side unique: match by more labels with on(...), or aggregate that side first, such as sum by (...).",
    ),
    (
        "many-to-one matching must be explicit",
        "Name the side that has several series for one of the other: group_left for the left one, group_right for the "
        "right one.",
    ),
    (
        "grouping labels must ensure unique matches",
        "Name more labels in group_left(...) or group_right(...), so that each series of the answer differs.",
    ),
    (SAME_LABELS, "Keep a label that tells the series apart, or aggregate them first, such as sum by (...)."),
    ("limit", "Ask for fewer series, a shorter range or longer steps."),
    ("fewer series", "Ask for fewer series, a shorter range or longer steps."),
)


def problem(failure: Failure) -> dict[str, Any]:
    """The error as JSON. line, column: count from 1, a column in bytes of UTF-8; null where the text names no
    position."""
    place = _PLACE.match(failure.text)
    text = place[3] if place else failure.text.removeprefix('invalid parameter "query": ')
    if failure.type is ErrorType.UNAUTHORIZED:
        text = SIGNED_OUT
    return {
        "status": "error",
        "errorType": failure.type.value,
        "error": text,
        "line": int(place[1]) if place else None,
        "column": int(place[2]) if place else None,
        "next": _next_step(failure, text),
    }


def _next_step(failure: Failure, text: str) -> str:
    if failure.type is not ErrorType.EXECUTION:
        return _NEXT[failure.type]
    return next((step for part, step in _FITTING if part in text), _NEXT[ErrorType.EXECUTION])
