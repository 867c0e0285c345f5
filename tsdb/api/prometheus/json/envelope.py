"""Envelope: writes the JSON object around each answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import orjson

from tsdb.api.prometheus.errors import Failure
from tsdb.api.prometheus.json.rows import json_text, valid_text
from tsdb.ops.http.bodies import HttpAnswer

JSON = "application/json"
ANNOTATIONS_MAX = 10  # Most annotations of each kind, as in Prometheus. The answer states the number of the others.


@dataclass(frozen=True, slots=True)
class Result:
    """data: JSON in pieces. A piece is valid until the next one is requested."""

    data: Iterator[bytes | memoryview]
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


def success(result: Result) -> Iterator[bytes | memoryview]:
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
