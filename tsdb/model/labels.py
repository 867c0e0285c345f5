"""Labels: encode the identity of a series as one canonical byte string.

Canonical labels are `name 0xFF value 0xFF name 0xFF value ...`, UTF-8, sorted by name. 0xFF never occurs in UTF-8, so
the joined form is unambiguous. `series_id` is their xxh3-64 (docs/formats/partitioner.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import xxhash

from tsdb.model.errors import InvalidRequest

SEPARATOR = b"\xff"
METRIC_NAME = b"__name__"
# Labels of downsampled series (tsdb.model.resolution), which no sender may write. All other names are free, as they are
# for Prometheus's receiver of remote write: senders use __replica__, __type__, __endpoint__ and more.
RESERVED = (b"__resolution__", b"__aggr__")
SHOWN_BYTES_MAX = 200  # Longer label sets are cut in messages.


@dataclass(frozen=True, slots=True)
class LabelLimits:
    """Bounds of one label set, in bytes of UTF-8. The bounds themselves are allowed."""

    labels_max: int = 64
    name_bytes_max: int = 256
    value_bytes_max: int = 2048
    total_bytes_max: int = 8192


def canonical_labels(labels: Mapping[str, str] | Iterable[tuple[str, str]]) -> bytes:
    """Join labels, sorted by name; no limits are checked. Raises InvalidRequest (labels_malformed) if not UTF-8."""
    pairs = list(labels.items() if isinstance(labels, Mapping) else labels)
    for name, value in pairs:
        if not (isinstance(name, str) and isinstance(value, str)):
            raise InvalidRequest(
                f"label {name!r} has the value {value!r} ({type(value).__name__}); names and values are text",
                reason="labels_malformed",
            )
    try:
        encoded = sorted((name.encode(), value.encode()) for name, value in pairs)
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"label text is not valid UTF-8: {error}", reason="labels_malformed") from None
    return SEPARATOR.join(part for pair in encoded for part in pair)


def parse_labels(canonical: bytes) -> tuple[tuple[str, str], ...]:
    """Split canonical labels into (name, value) pairs, in their order."""
    parts = bytes(canonical).decode(errors="surrogateescape").split("\udcff") if canonical else []
    return tuple(zip(parts[::2], parts[1::2], strict=True))


def normalize_labels(raw: bytes, limits: LabelLimits) -> bytes:
    """Check labels as a caller sent them, in any order, and return them canonical.

    Raises InvalidRequest with the label, its size, the limit and the setting of a gateway that has it; reasons
    labels_empty, labels_malformed, labels_reserved, labels_duplicate, labels_too_many, labels_too_long. An empty value
    is kept as sent, so that a read returns the written labels; matchers treat it as an absent label.
    """
    if not raw:
        raise InvalidRequest("label set is empty; __name__ is required", reason="labels_empty")
    if len(raw) > limits.total_bytes_max:
        _refuse(
            raw, "labels_too_long", f"{len(raw)} bytes in all; limit is {limits.total_bytes_max} (labels_bytes_max)"
        )
    parts = raw.split(SEPARATOR)
    if len(parts) % 2:
        _refuse(raw, "labels_malformed", "a label name without a value (names and values are joined by 0xFF)")
    if len(parts) // 2 > limits.labels_max:
        _refuse(raw, "labels_too_many", f"{len(parts) // 2} labels; limit is {limits.labels_max} (labels_max)")
    pairs = sorted(zip(parts[::2], parts[1::2], strict=True))
    for index, (name, value) in enumerate(pairs):
        _check_pair(raw, name, value, limits)
        if index and pairs[index - 1][0] == name:
            _refuse(raw, "labels_duplicate", f"label {_shown(name)} twice")
    if not any(name == METRIC_NAME for name, _ in pairs):
        _refuse(raw, "labels_malformed", "no __name__ label")
    return SEPARATOR.join(part for pair in pairs for part in pair)


def _check_pair(raw: bytes, name: bytes, value: bytes, limits: LabelLimits) -> None:
    if not name:
        _refuse(raw, "labels_malformed", "an empty label name")
    if not value and name == METRIC_NAME:
        _refuse(raw, "labels_malformed", "__name__ is empty")
    if len(name) > limits.name_bytes_max:
        text = f"label name of {len(name)} bytes; limit is {limits.name_bytes_max} (label_name_bytes_max)"
        _refuse(raw, "labels_too_long", text)
    if len(value) > limits.value_bytes_max:
        text = f"value of {_shown(name)} has {len(value)} bytes; limit is {limits.value_bytes_max}"
        _refuse(raw, "labels_too_long", f"{text} (label_value_bytes_max)")
    if name in RESERVED:
        _refuse(raw, "labels_reserved", f"label {_shown(name)} is reserved for downsampled series: rename it")
    try:
        name.decode()
        value.decode()
    except UnicodeDecodeError:
        _refuse(raw, "labels_malformed", f"label {_shown(name)} is not valid UTF-8")


def _refuse(raw: bytes, reason: str, what: str) -> None:
    raise InvalidRequest(f"{what}; series {_shown(raw)}", reason=reason)


def _shown(raw: bytes) -> str:
    cut = raw[:SHOWN_BYTES_MAX].replace(SEPARATOR, b"|").decode(errors="replace")
    return repr(cut + ("..." if len(raw) > SHOWN_BYTES_MAX else ""))


def series_id(canonical: bytes) -> int:
    """xxh3-64 of canonical labels, unsigned."""
    return xxhash.xxh3_64_intdigest(canonical)


def metric_name(canonical: bytes) -> bytes:
    """Value of `__name__`, b"" when absent."""
    parts = canonical.split(SEPARATOR)
    for index in range(0, len(parts) - 1, 2):
        if parts[index] == METRIC_NAME:
            return parts[index + 1]
    return b""


def labels_json(canonical: bytes) -> str:
    """Labels as compact JSON text with sorted keys: the form of the `labels` column in Parquet and CSV."""
    return json.dumps(dict(parse_labels(canonical)), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def format_series(canonical: bytes) -> str:
    """Labels in the notation of Prometheus: `name{a="b",c="d"}`; cut when long."""
    pairs = parse_labels(canonical)
    name = next((value for key, value in pairs if key == "__name__"), "")
    rest = ",".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in pairs if key != "__name__")
    text = f"{name}{{{rest}}}" if rest else name
    return text if len(text) <= 2 * SHOWN_BYTES_MAX else text[: 2 * SHOWN_BYTES_MAX] + "..."
