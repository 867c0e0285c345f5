"""Files of the pages: scripts and styles of ours, and BokehJS as the wheel of Bokeh brings it.

Each is read and compressed at its first request. Their URL has a hash of the contents, so browsers keep them.

Refuses pages when the installation lacks their libraries.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from tsdb.model.errors import Unavailable
from tsdb.ops.http.bodies import HttpAnswer, HttpHead
from tsdb.ui.headers import SAFE

PREFIX = "/ui/files/"
OWN = Path(__file__).parent / "static"
BOKEH = "bokeh.js"
_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
_KEPT = ("cache-control", "public, max-age=31536000, immutable")
_ASKED = ("cache-control", "no-cache")

_loaded: set[str] = set()


def not_installed() -> Unavailable:
    """The error of a page, a graph or a file that needs them."""
    return Unavailable(
        "the libraries of the pages are not installed: pip install 'kafka-tsdb[ui]', then restart",
        reason="ui_not_installed",
    )


@dataclass(frozen=True, slots=True)
class File:
    """A file in memory. compressed: its bytes with gzip. digest: hash of the contents, for the URL."""

    content_type: str
    data: bytes
    compressed: bytes
    digest: str


def is_file(name: str) -> bool:
    """Whether there is a file of this name."""
    return name in _names()


def url_of(name: str) -> str:
    """The URL of a file, which changes with its contents."""
    return f"{PREFIX}{name}?{file_of(name).digest}"


@cache
def file_of(name: str) -> File:
    """The file of a known name. Raises Unavailable (ui_not_installed)."""
    path = _bokeh() if name == BOKEH else OWN / name
    data = path.read_bytes()
    digest = hashlib.sha256(data).hexdigest()[:16]
    made = File(_TYPES[path.suffix], data, gzip.compress(data, 6), digest)
    _loaded.add(name)
    return made


def answer(name: str, head: HttpHead) -> HttpAnswer:
    """Answer with the file. Browsers cache it when the URL has its hash; otherwise they ask again each time."""
    file = file_of(name)
    tag = f'"{file.digest}"'
    kept = _KEPT if head.query == file.digest else _ASKED
    headers = (*SAFE, kept, ("vary", "accept-encoding"), ("etag", tag))
    if head.headers.get("if-none-match") == tag:
        return HttpAnswer(304, content_type="", headers=headers)
    if "gzip" in head.headers.get("accept-encoding", ""):
        return HttpAnswer(200, file.compressed, file.content_type, (*headers, ("content-encoding", "gzip")))
    return HttpAnswer(200, file.data, file.content_type, headers)


def is_loaded(name: str) -> bool:
    """Whether the file is in memory, so that an answer takes no time."""
    return name in _loaded


@cache
def _names() -> frozenset[str]:
    return frozenset({BOKEH, *(path.name for path in OWN.iterdir() if path.suffix in _TYPES)})


def _bokeh() -> Path:
    spec = find_spec("bokeh")  # Found, not imported: Bokeh takes half a second and 32 MB.
    if spec is None or spec.origin is None:
        raise not_installed()
    return Path(spec.origin).parent / "server" / "static" / "js" / "bokeh.min.js"
