"""FamilyMapper: maps name, type, help and unit of each metric of a request, and the labels of resource and scope.

This is the part of the mapping that runs in Python, once a metric and once a resource. Names and resources repeat from
request to request, so they are remembered.

An arena has all bytes that Python makes for the kernels, and the texts of numbers.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.otlp.mapping.label_kernels import CONTEXT_COLUMNS, FAMILY_COLUMNS, PIECES
from ingest.otlp.mapping.names import OtlpRules, TranslationStrategy, metric_name, unit_name
from ingest.otlp.mapping.resources import ContextLabel, Resource, merged, read_resource, read_scope
from ingest.otlp.wire.field_kernels import (
    CUMULATIVE,
    DELTA,
    EXPONENTIAL,
    GAUGE,
    HISTOGRAM,
    KINDS,
    ODD_KIND,
    ODD_VALUE_AT,
    ODD_VALUE_END,
    SUM,
    SUMMARY,
)
from ingest.otlp.wire.tables import Tables
from ingest.otlp.wire.values import odd_value, plain_text, text_of
from ingest.protobuf_fields import Buffer
from tsdb.model.errors import InvalidRequest
from tsdb.model.family import Family
from tsdb.model.labels import SEPARATOR

# Longer resources and names are built each time, so that the memory stays bounded.
RESOURCE_BYTES_MAX, NAME_BYTES_MAX = 4096, 512
RESOURCES_MAX, NAMES_MAX = 2048, 16_384
SHOWN_MAX = 100
WITH_TEMPORALITY = (SUM, HISTOGRAM, EXPONENTIAL)
DELTA_REASON = "delta_temporality"
# Prometheus has no type for deltas, and marks them with this one.
DELTA_TYPE = "unknown"
TYPES = {GAUGE: "gauge", SUM: "gauge", HISTOGRAM: "histogram", EXPONENTIAL: "histogram", SUMMARY: "summary"}

_BITS = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")


@dataclass(frozen=True, slots=True)
class MappedMetrics:
    """families, contexts: the tables of `layout`. metadata: the metadata of the accepted metrics. resources: one for
    each row of the resources' table. errors: refused metrics, by their row.
    """

    families: NDArray[np.int64]
    contexts: NDArray[np.int64]
    metadata: list[Family]
    resources: list[Resource]
    errors: dict[int, InvalidRequest]


class FamilyMapper:
    """Maps metrics by the rules. Thread-safe: what it remembers is only ever added to, or dropped as a whole."""

    def __init__(self, rules: OtlpRules, attributes_max: int) -> None:
        self._rules = rules
        self._attributes_max = attributes_max
        self._resources: dict[bytes, Resource] = {}

    def map(self, tables: Tables, data: Buffer, arena: Arena) -> MappedMetrics:
        """Raises InvalidRequest (malformed_request)."""
        resources = [self._resource(data, *row) for row in tables.resources.tolist()]
        scopes: list[tuple[ContextLabel, ...]] = [()] * len(tables.scopes)
        errors_of_scopes: dict[int, InvalidRequest] = {}
        if self._rules.promote_scope_metadata:
            for row, (at, end) in enumerate(tables.scopes.tolist()):
                try:
                    scopes[row] = read_scope(bytes(data[at:end]), self._rules)
                except InvalidRequest as error:
                    errors_of_scopes[row] = error
        contexts = _Contexts(arena)
        families, metadata, errors = [], [], {}
        for row, (resource, scope, kind, temporality, monotonic, *spans, _, _) in enumerate(tables.metrics.tolist()):
            name_at, name_end, help_at, help_end, unit_at, unit_end = spans
            name, unit = bytes(data[name_at:name_end]), bytes(data[unit_at:unit_end])
            try:
                if failed := resources[resource].error or errors_of_scopes.get(scope):
                    raise failed
                self._check(name, kind, temporality)
                family = _family_name(name, unit, kind, bool(monotonic), self._rules.translation_strategy)
            except InvalidRequest as error:
                errors[row] = error
                families.append((0, 0, 0, 0, 1))
                continue
            context = contexts.add(resources[resource].labels, scopes[scope])
            families.append((*arena.add(family), *context, 0))
            text = data[help_at:help_end].decode(errors="replace")
            kind_of = DELTA_TYPE if is_delta(kind, temporality) else "counter" if monotonic else TYPES[kind]
            metadata.append(Family(family.decode(errors="replace"), kind_of, text, _unit_name(unit)))
        return MappedMetrics(
            np.array(families, np.int64).reshape(-1, FAMILY_COLUMNS), contexts.array(), metadata, resources, errors
        )

    def _resource(self, data: Buffer, at: int, end: int, attributes: int) -> Resource:
        if attributes > self._attributes_max:
            return Resource(
                error=InvalidRequest(
                    f"a resource has {attributes} attributes; limit is {self._attributes_max} (twice labels_max)",
                    reason="labels_too_many",
                )
            )
        message = bytes(data[at:end])
        resource = self._resources.get(message)
        if resource is None:
            resource = read_resource(message, self._rules)
            if len(message) <= RESOURCE_BYTES_MAX:
                if len(self._resources) >= RESOURCES_MAX:
                    self._resources.clear()
                self._resources[message] = resource
        return resource

    def _check(self, name: bytes, kind: int, temporality: int) -> None:
        shown = f"metric {name[:SHOWN_MAX].decode(errors='replace')!r}"
        if is_delta(kind, temporality):
            self._check_delta(shown, kind)
        elif kind in WITH_TEMPORALITY and temporality != CUMULATIVE:
            raise InvalidRequest(
                f"{shown} is a {KINDS[kind]} with temporality {temporality}; {self._accepted()}",
                reason="unspecified_temporality",
            )
        if kind == EXPONENTIAL and self._rules.native_histograms == "refuse":
            raise InvalidRequest(
                f"{shown} is an exponential histogram, which native_histograms = refuse does not accept",
                reason="native_histogram",
            )

    def _check_delta(self, shown: str, kind: int) -> None:
        if self._rules.delta == "refuse":
            raise InvalidRequest(
                f"{shown} has delta temporality, which otlp_delta = refuse does not accept: set the sender to "
                "cumulative",
                reason=DELTA_REASON,
            )
        if kind == EXPONENTIAL and self._rules.native_histograms == "classic":
            # Each interval has boundaries where its own values lie, so a sum over one boundary lacks the intervals
            # without it.
            raise InvalidRequest(
                f"{shown} is an exponential histogram of delta temporality, whose classic buckets do not add up: set "
                "native_histograms = keep, or the sender to cumulative",
                reason=DELTA_REASON,
            )

    def _accepted(self) -> str:
        cumulative = "cumulative (2) is accepted"
        return cumulative if self._rules.delta == "refuse" else "delta (1) and cumulative (2) are accepted"


def is_delta(kind: int, temporality: int) -> bool:
    """Whether each point of a metric has what was added in its own interval alone."""
    return kind in WITH_TEMPORALITY and temporality == DELTA


class _Contexts:
    """The table of contexts. Metrics with the same labels share rows."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._rows: list[tuple[int, int, int, int, int]] = []
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    def add(self, resource: tuple[ContextLabel, ...], scope: tuple[ContextLabel, ...]) -> tuple[int, int]:
        """(first row, bytes of the labels)."""
        # Both objects live as long as the request, so their ids are keys. A hash of their contents would be computed
        # each time.
        key = id(resource), id(scope)
        known = self._known.get(key)
        if known is None:
            first, size = len(self._rows), 0
            for label in merged(resource, scope) if scope else resource:
                start, end = self._arena.add(label.name + SEPARATOR + label.value)
                self._rows.append((start, start + len(label.name), end, int(label.fallback), 0))
                size += 1 + end - start
            self._rows.append((0, 0, 0, 0, 1))
            known = self._known[key] = first, size
        return known

    def array(self) -> NDArray[np.int64]:
        return np.array(self._rows, np.int64).reshape(-1, CONTEXT_COLUMNS)


def _family_name(name: bytes, unit: bytes, kind: int, monotonic: bool, strategy: TranslationStrategy) -> bytes:
    function = _remembered_name if len(name) + len(unit) <= NAME_BYTES_MAX else _built_name
    return function(name, unit, kind, monotonic, strategy)


def _built_name(name: bytes, unit: bytes, kind: int, monotonic: bool, strategy: TranslationStrategy) -> bytes:
    text, unit_text = name.decode(errors="surrogateescape"), unit.decode(errors="surrogateescape")
    family = metric_name(text, unit_text, kind, monotonic, strategy).encode(errors="surrogateescape")
    if SEPARATOR in family:
        raise InvalidRequest(f"metric name {name[:SHOWN_MAX]!r} is not valid UTF-8", reason="labels_malformed")
    return family


_remembered_name = functools.lru_cache(maxsize=NAMES_MAX)(_built_name)


@functools.lru_cache(maxsize=1024)
def _remembered_unit(unit: bytes) -> str:
    return unit_name(unit.decode(errors="replace"))


def _unit_name(unit: bytes) -> str:
    return _remembered_unit(unit) if len(unit) <= SHOWN_MAX else unit_name(unit.decode(errors="replace"))


class Arena:
    """Bytes that only grow; a span of them is (start, end)."""

    def __init__(self) -> None:
        self._bytes = bytearray(PIECES)

    def add(self, text: bytes) -> tuple[int, int]:
        """Append a text; its span."""
        start = len(self._bytes)
        self._bytes += text
        return start, len(self._bytes)

    def array(self) -> NDArray[np.uint8]:
        """The arena as an array. Nothing may be added afterwards."""
        return np.frombuffer(self._bytes, np.uint8)


def boundary_texts(boundaries: NDArray[np.float64], arena: Arena) -> NDArray[np.int64]:
    """int64 (n, 2): the span of the text of `le` or `quantile` of each boundary."""
    distinct, index = np.unique(boundaries.view(np.int64), return_inverse=True)
    spans = [arena.add(_boundary_text(bits)) for bits in distinct.tolist()]
    return np.array(spans, np.int64).reshape(-1, 2)[index]


def odd_texts(tables: Tables, data: Buffer, arena: Arena) -> NDArray[np.int64]:
    """int64 (n, 2): the span of the text of each odd value. Equal values of one request share their text."""
    known: dict[tuple[int, bytes], tuple[int, int]] = {}
    spans = []
    for kind, at, end in tables.odd[:, [ODD_KIND, ODD_VALUE_AT, ODD_VALUE_END]].tolist():
        key = kind, bytes(data[at:end])
        span = known.get(key)
        if span is None:
            span = known[key] = arena.add(text_of(odd_value(data, kind, at, end)))
        spans.append(span)
    return np.array(spans, np.int64).reshape(-1, 2)


# Boundaries repeat from request to request; their texts have at most 350 bytes.
@functools.lru_cache(maxsize=4096)
def _boundary_text(bits: int) -> bytes:
    return plain_text(_DOUBLE.unpack(_BITS.pack(bits))[0]).encode()
