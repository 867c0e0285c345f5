"""Content type and encoding of a request: their form, and the refusal of the ones that a protocol does not accept."""

from __future__ import annotations

from functools import lru_cache

from ingest.http.protocol import MediaType, WriteProtocol
from tsdb.model.errors import InvalidRequest
from tsdb.ops.http.bodies import HttpHead

MEDIA_TYPE = "unsupported_media_type"
ENCODING = "unsupported_encoding"
VERSION = "unsupported_version"
_SHOWN = 100  # Characters of a header in a message.


def media_type(protocol: WriteProtocol, head: HttpHead) -> MediaType:
    """The content type. Raises InvalidRequest (unsupported_media_type)."""
    found = parse_media_type(head.headers.get("content-type", ""))
    if protocol.content_types is not None and found.name not in protocol.content_types:
        accepted = ", ".join(sorted(name for name in protocol.content_types if name))
        raise InvalidRequest(
            f"content-type {shown(found.name)} is not accepted here; send {accepted}",
            reason=MEDIA_TYPE,
        )
    return found


def encoding(protocol: WriteProtocol, head: HttpHead) -> str:
    """The content encoding in lower case, or the protocol's default. Raises InvalidRequest (unsupported_encoding)."""
    found = head.headers.get("content-encoding", "").strip().lower() or protocol.default_encoding
    if found not in protocol.encodings:
        accepted = ", ".join(sorted(name for name in protocol.encodings if name))
        raise InvalidRequest(
            f"content-encoding {shown(found)} is not accepted here; send {accepted or 'none'}", reason=ENCODING
        )
    return found


@lru_cache(64)  # A header has at most 16 KiB.
def parse_media_type(text: str) -> MediaType:
    """`text`: the header. Parameters without a value are left out."""
    name, *rest = text.split(";")
    pairs = (part.partition("=") for part in rest)
    parameters = {key.strip().lower(): value.strip().strip('"') for key, equals, value in pairs if equals}
    return MediaType(name.strip().lower(), parameters)


def shown(text: str) -> str:
    """A header's value for a message."""
    return repr(text[:_SHOWN]) if text else "(none)"
