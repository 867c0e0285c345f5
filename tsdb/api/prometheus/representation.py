"""Representation: describes an answer in another form than JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tsdb.ops.http.bodies import HttpHead

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Representation:
    """A body that is sent without compression, because it is compact already. headers: headers beside content-type."""

    pieces: Iterator[bytes | memoryview]
    content_type: str
    headers: Headers = ()


def accepts(head: HttpHead, media_type: str) -> bool:
    """Whether a request names a media type in `Accept`. Ranges such as `*/*` do not count."""
    if media_type not in head.headers.get("accept", "").lower():
        return False
    for part in head.headers.get("accept", "").lower().split(","):
        name, *parameters = (text.strip() for text in part.split(";"))
        if name == media_type:
            return not any(one.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for one in parameters)
    return False
