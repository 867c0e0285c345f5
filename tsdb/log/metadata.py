"""Metadata of metric families on the topic `metadata`: it is written when new or changed, and read as a whole.

Format: docs/formats/metadata.md.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from functools import partial

from tsdb.log.interface import METADATA, Appended, Log
from tsdb.log.records import read_to_end
from tsdb.model.clock import Clock
from tsdb.model.errors import CorruptData, TsdbError, UnknownVersion
from tsdb.model.family import NAME_BYTES_MAX, TEXT_BYTES_MAX, Family
from tsdb.ops.lifecycle import Component
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

VERSION = 1
FAMILIES_MAX = 100_000  # Families take some 300 B each in memory; the largest installations have some 20,000.
CHANGE_EVERY_S = 60.0  # Two senders that disagree about a family write at this pace, and not at each request.

_families = counter(
    "tsdb_ingest_metadata_total",
    "Metric families whose metadata was new or changed: written, failed (repeated with the next request), dropped.",
    "result",
    ("written", "failed", "dropped"),
)

log_ = get_logger(__name__)


def read_metadata(log: Log) -> dict[str, Family]:
    """All families by name. Raises CorruptData, UnknownVersion, and the errors of a reader."""
    found: dict[str, Family] = {}
    for record in read_to_end(log, METADATA, 0):
        name = (record.key or b"").decode(errors="replace")
        if record.value is None:
            found.pop(name, None)
        else:
            found[name] = decode_family(name, record.value)
    return found


def encode_family(family: Family) -> bytes:
    """Encode a family as the value of its record."""
    fields = {"version": VERSION, "type": family.kind, "help": family.help, "unit": family.unit}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


def decode_family(name: str, value: bytes) -> Family:
    """Raises CorruptData (metadata), UnknownVersion."""
    try:
        fields = json.loads(value)
        version = fields["version"]
        if version == VERSION:
            return Family(name, str(fields["type"]), str(fields["help"]), str(fields["unit"]))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptData(
            f"topic metadata: the record of {name!r} does not parse: {error}", reason="metadata"
        ) from None
    raise UnknownVersion(f"topic metadata: the record of {name!r} is of version {version}; known: {VERSION}")


class MetadataWriter(Component):
    """Writes families that the topic does not have yet; thread-safe. A component: its start reads the topic."""

    def __init__(self, log: Log, clock: Clock, families_max: int = FAMILIES_MAX) -> None:
        self._log = log
        self._clock = clock
        self._families_max = families_max
        self._lock = threading.Lock()  # Guards all below; not held during an append.
        self._known: dict[str, Family] = {}
        self._written_at: dict[str, float] = {}  # Monotonic times of families that this process wrote.

    def start(self) -> None:
        """Read the topic. When that fails, each family is written once more, which changes nothing."""
        try:
            known = read_metadata(self._log)
        except TsdbError as error:
            log_.warning("metadata of metric families not read; it is written again", error=error.message)
            return
        with self._lock:
            self._known.update(known)

    def write(self, families: Sequence[Family]) -> None:
        """Append those that are new or changed; returns at once, and the log answers later."""
        for family in families:
            if self._known.get(family.name) != family and family.stated:
                self._write(_bounded(family))

    def join(self, timeout_s: float) -> bool:
        """No effect: metadata without an answer is written again by the next gateway."""
        return True

    def _write(self, family: Family) -> None:
        name, now = family.name, self._clock.monotonic()
        with self._lock:
            known = self._known.get(name)
            if known == family or (known and now - self._written_at.get(name, -CHANGE_EVERY_S) < CHANGE_EVERY_S):
                return
            if (known is None and len(self._known) >= self._families_max) or len(name.encode()) > NAME_BYTES_MAX:
                _families.labels("dropped").inc()
                return
            self._known[name] = family
            self._written_at[name] = now
        answer = partial(self._answered, family)
        try:
            self._log.append(METADATA, 0, encode_family(family), key=name.encode(), on_done=answer)
        except TsdbError as error:
            answer(error)

    def _answered(self, family: Family, answer: Appended | TsdbError) -> None:
        if not isinstance(answer, TsdbError):
            _families.labels("written").inc()
            return
        _families.labels("failed").inc()
        with self._lock:
            if self._known.get(family.name) == family:
                del self._known[family.name]


def _bounded(family: Family) -> Family:
    return Family(family.name, _cut(family.kind), _cut(family.help), _cut(family.unit))


def _cut(text: str) -> str:
    if len(text) * 4 <= TEXT_BYTES_MAX:
        return text
    return text.encode(errors="replace")[:TEXT_BYTES_MAX].decode(errors="ignore")
