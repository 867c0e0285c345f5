"""Answers: the JSON object around each, their content encoding, and how a large one is sent while it is made.

The pieces of a large answer are made on threads while the event loop sends the pieces before them.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Protocol

import orjson
import zstandard

from tsdb.api.prometheus.errors import Failure
from tsdb.api.prometheus.json.rows import json_text, valid_text
from tsdb.ops.http.bodies import Headers, HttpAnswer, HttpHead
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import adder, counter

JSON = "application/json"
ANNOTATIONS_MAX = 10  # Most annotations of each kind, as in Prometheus. The answer states the number of the others.
PIECES_BYTES = 1 << 20  # Pieces made at once: some milliseconds of work.
GZIP, ZSTD, IDENTITY = "gzip", "zstd", ""
# Level of zlib. Level 1 compresses such JSON to a tenth at some 150 MB/s. The default takes three times as long and
# saves a fifth.
GZIP_LEVEL = 1
ZSTD_LEVEL = 1
_GZIP_BITS = zlib.MAX_WBITS | 16

_bytes = counter(
    "tsdb_query_answer_bytes_total", "Bytes of answers of the Prometheus API that were made, compressed where they are."
)
_add_bytes = adder(_bytes)

log = get_logger(__name__)

Pieces = Iterator[bytes | memoryview]


@dataclass(frozen=True, slots=True)
class Result:
    """data: JSON in pieces. A piece is valid until the next one is requested."""

    data: Pieces
    warnings: Sequence[str] = ()
    infos: Sequence[str] = ()


def plain(data: Any, warnings: Sequence[str] = ()) -> Result:
    """A result of strings, numbers, lists and dicts."""
    return Result(iter((json_of(data),)), warnings)


def json_of(data: Any) -> bytes:
    """JSON of strings, numbers, lists and dicts. Bytes that are not UTF-8 are replaced."""
    try:
        return orjson.dumps(data)
    except orjson.JSONEncodeError:
        return json.dumps(_replaced(data), ensure_ascii=False, separators=(",", ":")).encode()


def success(result: Result) -> Pieces:
    """The whole answer, in pieces."""
    end = b"}"
    if result.warnings or result.infos:
        end = _annotations("warnings", "warning", result.warnings) + _annotations("infos", "info", result.infos) + end
    return chain((b'{"status":"success","data":',), result.data, (end,))


def failed(failure: Failure) -> HttpAnswer:
    """The answer to a request that failed."""
    return HttpAnswer(failure.status, error(failure), JSON)


def error(failure: Failure) -> bytes:
    """The whole answer of a request that failed."""
    return b'{"status":"error","errorType":"%b","error":%b}' % (failure.type.value.encode(), json_text(failure.text))


def shown_annotations(kind: str, texts: Sequence[str]) -> list[str]:
    """The texts that an answer shows. kind: warning or info."""
    left_out = len(texts) - ANNOTATIONS_MAX
    if left_out <= 0:
        return list(texts)
    return [*texts[:ANNOTATIONS_MAX], f"{left_out} more {kind} annotations omitted"]


def _annotations(name: str, kind: str, texts: Sequence[str]) -> bytes:
    if not texts:
        return b""
    return b',"%b":[%b]' % (name.encode(), b",".join(map(json_text, shown_annotations(kind, texts))))


def _replaced(data: Any) -> Any:
    """The same data with valid texts."""
    if isinstance(data, str):
        return valid_text(data)
    if isinstance(data, dict):
        return {_replaced(key): _replaced(value) for key, value in data.items()}
    return [_replaced(one) for one in data] if isinstance(data, list | tuple) else data


@dataclass(frozen=True, slots=True)
class Representation:
    """A body that is sent without compression, because it is compact already. headers: headers beside content-type."""

    pieces: Pieces
    content_type: str
    headers: Headers = ()
    status: int = 200


def accepts(head: HttpHead, media_type: str) -> bool:
    """Whether a request names a media type in `Accept`. Ranges such as `*/*` do not count."""
    if media_type not in head.headers.get("accept", "").lower():
        return False
    for part in head.headers.get("accept", "").lower().split(","):
        name, *parameters = (text.strip() for text in part.split(";"))
        if name == media_type:
            return not any(one.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for one in parameters)
    return False


class AnswerStream:
    """A BodyStream (tsdb.ops.http.bodies). run: runs work on a thread. release: called once, after the answer is sent
    or its peer has left, when no thread works on it any more."""

    def __init__(self, pieces: Pieces, run: Callable[[Callable[[], None]], None], release: Callable[[], None]) -> None:
        self._pieces: Pieces | None = pieces
        self._run = run
        self._release = release
        self._lock = threading.Lock()  # Guards _pieces; held while they are made.

    def make(self, deliver: Callable[[Sequence[bytes], bool], None]) -> None:
        """Implements BodyStream.make; the threads of `run` make the pieces."""
        self._run(lambda: self._make(deliver))

    def close(self) -> None:
        """Implements BodyStream.close. A thread releases the memory, because another thread may still make pieces."""
        self._run(self._close)

    def _make(self, deliver: Callable[[Sequence[bytes], bool], None]) -> None:
        with self._lock:
            if self._pieces is None:
                return
            try:
                made, is_last = next_pieces(self._pieces)
            except Exception as error:
                log.error("an answer could not be written to its end", exc_info=error)
                made, is_last = [], False
        deliver(made, is_last)

    def _close(self) -> None:
        with self._lock:
            pieces, self._pieces = self._pieces, None
        if pieces is not None:
            self._release()


def next_pieces(pieces: Pieces) -> tuple[list[bytes], bool]:
    """(pieces, are last): the next pieces, PIECES_BYTES or more."""
    made: list[bytes] = []
    size = 0
    for piece in pieces:
        made.append(bytes(piece))
        size += len(piece)
        if size >= PIECES_BYTES:
            _add_bytes(size)
            return made, False
    _add_bytes(size)
    return made, True


class _Compressor(Protocol):
    def compress(self, data: bytes | memoryview, /) -> bytes: ...

    def flush(self) -> bytes: ...


@lru_cache(maxsize=32)  # The clients of a server send few different values.
def accepted_encoding(header: str) -> str:
    """The encoding for an answer. header: Accept-Encoding."""
    accepted = {name for part in header.lower().split(",") if (name := _accepted(part))}
    return next((one for one in (ZSTD, GZIP) if one in accepted), IDENTITY)


def encoded(pieces: Pieces, encoding: str) -> Pieces:
    """The pieces in an encoding."""
    return pieces if encoding == IDENTITY else _compressed(pieces, encoding)


def _compressed(pieces: Pieces, encoding: str) -> Iterator[bytes]:
    compressor = _compressor(encoding)
    for piece in pieces:
        if made := compressor.compress(piece):
            yield made
    yield compressor.flush()


def _compressor(encoding: str) -> _Compressor:
    if encoding == GZIP:
        return zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_BITS)
    return zstandard.ZstdCompressor(ZSTD_LEVEL).compressobj()


def _accepted(part: str) -> str:
    name, *parameters = (text.strip() for text in part.split(";"))
    refused = any(parameter.replace(" ", "") in ("q=0", "q=0.0", "q=0.00", "q=0.000") for parameter in parameters)
    return "" if refused else name
