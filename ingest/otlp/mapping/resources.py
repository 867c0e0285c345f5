"""Resources and scopes: the labels that they give to all their series, and the series `target_info`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ingest.otlp.mapping.names import OtlpRules, label_name
from ingest.otlp.wire.values import Value, read_attributes, text_of
from ingest.protobuf_fields import fields
from tsdb.codec.protobuf_kernels import LENGTH
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import SEPARATOR

NAMESPACE, NAME, INSTANCE = b"service.namespace", b"service.name", b"service.instance.id"
SHOWN_MAX = 64
IDENTIFYING = (NAMESPACE, NAME, INSTANCE)


@dataclass(frozen=True, slots=True)
class ContextLabel:
    """fallback: a point's attribute with this name comes first. Otherwise the label replaces the attribute, also when
    its value is empty and gives no label."""

    name: bytes
    value: bytes
    fallback: bool = False


@dataclass(frozen=True, slots=True)
class Resource:
    """labels: the labels of all series of the resource. target_info: joined labels of that series, None when there is
    no need.

    error: the labels cannot be made, and all points of the resource are refused.
    """

    labels: tuple[ContextLabel, ...] = ()
    target_info: bytes | InvalidRequest | None = None
    error: InvalidRequest | None = None

    @property
    def source(self) -> str:
        """Job and instance of the resource, for messages."""
        named = {label.name: label.value.decode(errors="replace") for label in self.labels}
        held = [f'{name.decode()}="{named[name][:SHOWN_MAX]}"' for name in (b"job", b"instance") if name in named]
        return ",".join(held) or "(no service.name)"


def read_resource(message: bytes, rules: OtlpRules) -> Resource:
    """The resource of an encoded Resource message. Raises InvalidRequest (malformed_request)."""
    attributes = read_attributes(message, 0, len(message), 1)
    try:
        labels = _labels(attributes, rules)
    except InvalidRequest as error:
        return Resource(error=error)
    try:
        return Resource(labels, _target_info(attributes, rules))
    except InvalidRequest as error:
        return Resource(labels, error)


def read_scope(message: bytes, rules: OtlpRules) -> tuple[ContextLabel, ...]:
    """The labels of the scope of an encoded ScopeMetrics. Raises InvalidRequest (labels_malformed)."""
    name = version = schema = b""
    attributes: list[tuple[bytes, Value]] = []
    for number, kind, start, stop in fields(message, 0, len(message)):
        if kind == LENGTH and number == 1:
            for inner, inner_kind, at, end in fields(message, start, stop):
                if inner_kind == LENGTH and inner == 1:
                    name = message[at:end]
                elif inner_kind == LENGTH and inner == 2:
                    version = message[at:end]
            attributes = read_attributes(message, start, stop, 3)
        elif kind == LENGTH and number == 3:
            schema = message[start:stop]
    if not name:
        return ()
    found = {_name(b"otel_scope_" + key, rules): text_of(value) for key, value in attributes}
    found |= {b"otel_scope_name": name, b"otel_scope_version": version, b"otel_scope_schema_url": schema}
    return tuple(ContextLabel(key, value) for key, value in found.items() if _valid(value))


def merged(resource: Iterable[ContextLabel], scope: Iterable[ContextLabel]) -> tuple[ContextLabel, ...]:
    """The labels of resource and scope; those of the scope replace those of the resource."""
    return tuple({label.name: label for label in (*resource, *scope)}.values())


def _labels(attributes: list[tuple[bytes, Value]], rules: OtlpRules) -> tuple[ContextLabel, ...]:
    labels: dict[bytes, ContextLabel] = {}
    for key, value in attributes:
        if rules.promotes(key.decode(errors="surrogateescape")):
            name = _name(key, rules)
            labels[name] = ContextLabel(name, text_of(value), fallback=True)
    labels |= {name: ContextLabel(name, value) for name, value in _identity(attributes).items()}
    return tuple(label for label in labels.values() if label.value and _valid(label.value))


def _identity(attributes: list[tuple[bytes, Value]]) -> dict[bytes, bytes]:
    """Labels job and instance, where the resource has them. Of two attributes with one key the first counts."""
    first = dict(reversed(attributes))
    found = {}
    if NAME in first:
        namespace = [text_of(first[NAMESPACE])] if NAMESPACE in first else []
        found[b"job"] = b"/".join([*namespace, text_of(first[NAME])])
    if INSTANCE in first:
        found[b"instance"] = text_of(first[INSTANCE])
    return {name: value for name, value in found.items() if value}


def _target_info(attributes: list[tuple[bytes, Value]], rules: OtlpRules) -> bytes | None:
    others = [(key, value) for key, value in attributes if key not in IDENTIFYING]
    if not others:
        return None  # With only job and instance the series would have no content.
    kept = attributes if rules.keep_identifying_resource_attributes else others
    labels: dict[bytes, bytes] = {}
    for key, value in sorted(kept, key=lambda pair: pair[0]):
        name, text = _name(key, rules), text_of(value)
        labels[name] = labels[name] + b";" + text if labels.get(name) else text
    labels |= _identity(attributes)
    labels = {name: value for name, value in labels.items() if value and _valid(value)}
    if not labels.keys() & {b"job", b"instance"}:
        return None  # No query could join it with the other series.
    labels[b"__name__"] = b"target_info"
    return SEPARATOR.join(part for pair in labels.items() for part in pair)


def _name(key: bytes, rules: OtlpRules) -> bytes:
    try:
        return label_name(key.decode(), rules.translation_strategy).encode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"attribute key {key[:100]!r} is not valid UTF-8", reason="labels_malformed") from None


def _valid(value: bytes) -> bool:
    """Raises InvalidRequest for the byte that separates labels; the write pipeline checks all other bytes."""
    if SEPARATOR in value:
        raise InvalidRequest(f"attribute value {value[:100]!r} is not valid UTF-8", reason="labels_malformed")
    return True
