"""The mapping of OTLP to series in plain Python over protobuf objects: the twin of ingest.otlp's kernels.

It follows Prometheus's translator line by line (labels in a dict, one point at a time) and shares no code with the
product.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from support.data.column_cases import STALE_BITS

DELTA, CUMULATIVE = 1, 2
MARK_FOR_MS = 600_000


@dataclass
class TwinRules:
    escapes: bool = True
    suffixes: bool = True
    promoted: frozenset[str] = frozenset()
    scope_metadata: bool = False
    keep_identifying: bool = False
    attributes_max: int = 128
    deltas: bool = True


@dataclass
class TwinSamples:
    """samples: (labels, ts_ms, bits of the value), in the order of the request. refused: number of points. points:
    samples of the points, before those of the resources. gone: stale markers of boundaries, in any order."""

    samples: list[tuple[dict[str, str], int, int]] = field(default_factory=list)
    refused: int = 0
    points: int = 0
    gone: list[tuple[dict[str, str], int, int]] = field(default_factory=list)

    def assert_equal(self, found: list[tuple[dict[str, str], int, int]]) -> None:
        """Markers of boundaries come between the samples of points and those of resources."""
        end = self.points + len(self.gone)
        assert found[: self.points] + found[end:] == self.samples
        marked = [
            sorted((sorted(labels.items()), ts_ms) for labels, ts_ms, _ in rows)
            for rows in (found[self.points : end], self.gone)
        ]
        assert marked[0] == marked[1]
        assert {bits for _, _, bits in found[self.points : end]} <= {STALE_BITS}


class Refused(Exception):
    """A point, or all points of a metric."""


def translate(request: ExportMetricsServiceRequest, rules: TwinRules) -> TwinSamples:
    out, infos, histograms = TwinSamples(), [], dict[Any, dict[str, int]]()
    for resource_metrics in request.resource_metrics:
        newest, resource = None, list(resource_metrics.resource.attributes)
        for scope_metrics in resource_metrics.scope_metrics:
            for metric in scope_metrics.metrics:
                data = getattr(metric, metric.WhichOneof("data") or "gauge")
                for point in data.data_points:
                    try:
                        found = point_samples(resource, scope_metrics, metric, point, rules)
                        out.samples += found
                        if metric.HasField("exponential_histogram"):
                            out.gone += boundaries_gone(found, point, histograms)
                        newest = max(newest or 0, point.time_unix_nano)
                    except Refused:
                        out.refused += 1
        if newest is not None:
            infos.append((resource, newest // 1_000_000))
    out.points = len(out.samples)
    for resource, ts_ms in infos:
        labels = target_info(resource, rules)
        if labels and (labels, ts_ms, bits(1.0)) not in out.samples:
            out.samples.append((labels, ts_ms, bits(1.0)))
    return out


def point_samples(resource: list[KeyValue], scope: Any, metric: Any, point: Any, rules: TwinRules) -> Any:
    kind = metric.WhichOneof("data")
    data = getattr(metric, kind)
    if len(resource) > rules.attributes_max or len(point.attributes) > rules.attributes_max:
        raise Refused
    if kind in ("sum", "histogram", "exponential_histogram") and data.aggregation_temporality != CUMULATIVE:
        # The buckets of exponential histograms are classic ones here, which do not add up.
        is_kept = rules.deltas and kind != "exponential_histogram" and data.aggregation_temporality == DELTA
        if not is_kept:
            raise Refused
    if kind == "exponential_histogram" and point.scale < -4:
        raise Refused
    name = metric_name(metric, rules)
    labels = point_labels(resource, scope, point.attributes, rules)
    found = list(number_samples(kind, point)) if kind in ("gauge", "sum") else list(series_of(kind, point))
    ts_ms = point.time_unix_nano // 1_000_000
    stale = point.flags & 1
    return [
        ({**labels, **extra, "__name__": name + suffix}, ts_ms, STALE_BITS if stale else value)
        for suffix, extra, value in found
    ]


def boundaries_gone(found: Any, point: Any, histograms: dict[Any, dict[str, int]]) -> Any:
    """Stale markers of boundaries that an earlier point of a histogram had. histograms: boundary -> time of the last
    point that had it, and as "" the time of the newest point."""
    *buckets, (last, ts_ms, _) = [row for row in found if row[0]["__name__"].endswith("_bucket")]
    known = histograms.setdefault(frozenset((name, value) for name, value in last.items() if name != "le"), {})
    if ts_ms < known.get("", ts_ms):
        return
    known[""] = ts_ms
    bounds = {labels["le"] for labels, _, _ in buckets}
    live = set() if point.flags & 1 else bounds
    known |= dict.fromkeys(live, ts_ms)
    for bound in known.keys() - live - {""}:
        if bound not in bounds:
            yield {**last, "le": bound}, ts_ms, STALE_BITS
        if ts_ms - known[bound] > MARK_FOR_MS:
            del known[bound]


def number_samples(kind: str, point: Any) -> Any:
    value = point.WhichOneof("value")
    yield "", {}, bits(float(point.as_int)) if value == "as_int" else bits(point.as_double)


def series_of(kind: str, point: Any) -> Any:
    if kind == "summary" or point.HasField("sum"):
        yield "_sum", {}, bits(point.sum)
    yield "_count", {}, bits(float(point.count))
    if kind == "summary":
        for one in point.quantile_values:
            yield "", {"quantile": plain(one.quantile)}, bits(one.value)
        return
    pairs = exponential(point) if kind == "exponential_histogram" else explicit(point)
    for boundary, count in pairs:
        yield "_bucket", {"le": plain(boundary)}, bits(float(count % (1 << 64)))
    yield "_bucket", {"le": "+Inf"}, bits(float(point.count))


def explicit(point: Any) -> Any:
    total = 0
    for boundary, count in zip(point.explicit_bounds, point.bucket_counts, strict=False):
        total += count
        yield boundary, total


def exponential(point: Any) -> Any:
    schema, total = min(point.scale, 8), 0
    shift = point.scale - schema

    def merged(buckets: Any) -> dict[int, int]:
        used = [i for i, count in enumerate(buckets.bucket_counts) if count]
        found: dict[int, int] = {}
        for i in range(used[0], used[-1] + 1) if used else ():
            index = (buckets.offset + i) >> shift
            found[index] = found.get(index, 0) + buckets.bucket_counts[i]
        return found

    negative, positive = merged(point.negative), merged(point.positive)
    if negative:
        yield -boundary_of(max(negative) + 1, schema), 0
    for index in sorted(negative, reverse=True):
        total += negative[index]
        yield -boundary_of(index, schema), total
    if point.zero_count:
        total += point.zero_count
        yield point.zero_threshold, total
    if positive:
        yield boundary_of(min(positive), schema), total
    for index in sorted(positive):
        total += positive[index]
        yield boundary_of(index + 1, schema), total


def boundary_of(index: int, schema: int) -> float:
    power = index * 2.0**-schema
    if power > 1100:
        return math.inf
    return 0.0 if power < -1200 else float(Decimal(2) ** (Decimal(index) / Decimal(2) ** schema))


def point_labels(resource: list[KeyValue], scope: Any, attributes: Any, rules: TwinRules) -> dict[str, str]:
    labels = joined(attributes, rules)
    for one in resource:
        name = label_name(one.key, rules) if one.key in rules.promoted else ""
        if name and not joined(attributes, rules).get(name):
            labels[name] = text(one.value)
    labels |= identity(resource)
    if rules.scope_metadata and scope.scope.name:
        for one in scope.scope.attributes:
            labels[label_name("otel_scope_" + one.key, rules)] = text(one.value)
        labels["otel_scope_name"] = scope.scope.name
        labels["otel_scope_version"] = scope.scope.version
        labels["otel_scope_schema_url"] = scope.schema_url
    return {name: value for name, value in labels.items() if value}


def identity(resource: list[KeyValue]) -> dict[str, str]:
    first: dict[str, str] = {}
    for one in resource:
        first.setdefault(one.key, text(one.value))
    found = {}
    if "service.name" in first:
        prefix = f"{first['service.namespace']}/" if "service.namespace" in first else ""
        found["job"] = prefix + first["service.name"]
    if first.get("service.instance.id"):
        found["instance"] = first["service.instance.id"]
    return {name: value for name, value in found.items() if value}


def target_info(resource: list[KeyValue], rules: TwinRules) -> dict[str, str] | None:
    identifying = ("service.namespace", "service.name", "service.instance.id")
    others = [one for one in resource if one.key not in identifying]
    try:
        labels = joined(resource if rules.keep_identifying else others, rules) | identity(resource)
    except Refused:
        return None
    labels = {name: value for name, value in labels.items() if value}
    if not others or not ("job" in labels or "instance" in labels):
        return None
    return {**labels, "__name__": "target_info"}


def joined(attributes: Any, rules: TwinRules) -> dict[str, str]:
    labels: dict[str, str] = {}
    for one in sorted(attributes, key=lambda one: one.key.encode()):
        name = label_name(one.key, rules)
        labels[name] = f"{labels[name]};{text(one.value)}" if labels.get(name) else text(one.value)
    return labels


def label_name(key: str, rules: TwinRules) -> str:
    if not key:
        raise Refused
    if not rules.escapes:
        return key
    name = "".join(char if re.fullmatch("[a-zA-Z0-9_]", char) else "_" for char in key)
    if re.match("[0-9]", name):
        name = "key_" + name
    elif re.match("_(?!_)", name):
        name = "key" + name
    if name != key and not name.replace("_", ""):
        raise Refused
    return name


def metric_name(metric: Any, rules: TwinRules) -> str:
    """The units of the generated metrics alone. tests/unit/ingest/otlp has a table of all units."""
    kind = metric.WhichOneof("data")
    units = {
        "": "", "1": "", "s": "seconds", "ms": "milliseconds", "By": "bytes", "{request}": "",
        "m/s": "meters_per_second",
    }  # fmt: skip
    unit, name = units[metric.unit], metric.name
    endings = ["total"] if kind == "sum" and metric.sum.is_monotonic else []
    endings += ["ratio"] if kind == "gauge" and metric.unit == "1" else []
    main, _, per = unit.partition("_per_")
    words = [main] * bool(main) + [f"per_{per}"] * bool(per)
    if not rules.escapes:
        assert not rules.suffixes or not any(name.endswith(one) for one in (*endings, *words)), "not in the twin"
        built = "_".join([name, *words, *endings]) if rules.suffixes else name
    elif rules.suffixes:
        tokens = [token for token in re.split("[^a-zA-Z0-9:]", name) if token]
        tokens += [word for word in words if word not in tokens]
        for ending in endings:
            tokens = [token for token in tokens if token != ending] + [ending]
        built = "_".join(tokens)
    else:
        built = "_".join(token for token in re.split("[^a-zA-Z0-9:_]", name) if token)
    if rules.escapes and re.match("[0-9]", built):
        built = "_" + built
    if not built or (rules.escapes and built != name and not built.replace("_", "")):
        raise Refused
    return built


def text(value: AnyValue) -> str:
    kind = value.WhichOneof("value")
    if kind == "bool_value":
        return "true" if value.bool_value else "false"
    if kind == "double_value":
        number = value.double_value
        return script_number(number) if math.isfinite(number) else f"json: unsupported value: {plain(number)}"
    if kind == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    if kind in ("array_value", "kvlist_value"):
        try:
            return go_json(value)
        except ValueError:
            return ""
    return str(getattr(value, kind)) if kind else ""


def go_json(value: AnyValue) -> str:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return "[" + ",".join(go_json(one) for one in value.array_value.values) + "]"
    if kind == "kvlist_value":
        members = {one.key: go_json(one.value) for one in value.kvlist_value.values}
        return "{" + ",".join(f"{go_text(key)}:{members[key]}" for key in sorted(members)) + "}"
    if kind == "double_value" and not math.isfinite(value.double_value):
        raise ValueError
    if kind in ("string_value", "bytes_value"):
        return go_text(text(value))
    return text(value) if kind else "null"


def go_text(plain_text: str) -> str:
    quoted = json.dumps(plain_text, ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        quoted = quoted.replace(char, f"\\u{ord(char):04x}")
    return quoted


def script_number(number: float) -> str:
    if number == 0 or 1e-6 <= abs(number) < 1e21:
        return plain(number)
    digits, exponent = f"{number!r}".split("e")
    return f"{digits}e{'+' if int(exponent) > 0 else ''}{int(exponent)}"


def plain(number: float) -> str:
    if not math.isfinite(number):
        return {"inf": "+Inf", "-inf": "-Inf"}.get(str(number), "NaN")
    written = f"{Decimal(repr(number)):f}"
    return written[:-2] if written.endswith(".0") else written


def bits(value: float) -> int:
    number: int = struct.unpack("<q", struct.pack("<d", value))[0]
    return number
