"""Downsampled ranges, recorded in `meta`. Format: docs/formats/downsampled.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tsdb.log.interface import META, METRICS, Log
from tsdb.log.meta import read_values
from tsdb.model.errors import ConfigMismatch, UnknownVersion

VERSION = 1
KEY_PREFIX = "downsampled/"


@dataclass(frozen=True, slots=True)
class Downsampled:
    """History has derived series of one resolution for all samples of [start_ms, end_ms), ms since epoch, that history
    had when they were derived.
    """

    start_ms: int
    end_ms: int

    def joined(self, other: Downsampled | None) -> Downsampled:
        """The union of both ranges where they touch; otherwise this range."""
        if other is None or other.start_ms > self.end_ms or other.end_ms < self.start_ms:
            return self
        return Downsampled(min(self.start_ms, other.start_ms), max(self.end_ms, other.end_ms))


def read_downsampled(log: Log) -> Mapping[str, Downsampled]:
    """Ranges by resolution, of this incarnation of the log. Raises UnknownVersion, ConfigMismatch (meta), the log's."""
    prefix = _prefix(log)
    return {
        key.decode().removeprefix(prefix): _decoded(key, value)
        for key, value in read_values(log).items()
        if key.startswith(prefix.encode())
    }


def write_downsampled(log: Log, resolution: str, span: Downsampled) -> None:
    """Record a range, durable on return. A later record of the same resolution replaces it."""
    value = {"version": VERSION, "start_ms": span.start_ms, "end_ms": span.end_ms}
    log.append_sync(META, 0, json.dumps(value, sort_keys=True).encode(), key=f"{_prefix(log)}{resolution}".encode())


def _prefix(log: Log) -> str:
    return f"{KEY_PREFIX}{log.topic_id(METRICS)}/"


def _decoded(key: bytes, value: bytes) -> Downsampled:
    try:
        fields = json.loads(value)
        if fields["version"] != VERSION:
            raise UnknownVersion(f"{key!r} in topic meta is of version {fields['version']}; known: {VERSION}")
        return Downsampled(int(fields["start_ms"]), int(fields["end_ms"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigMismatch(f"topic meta: {key!r} does not parse: {error}", reason="meta") from None
