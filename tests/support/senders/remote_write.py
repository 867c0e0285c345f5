"""Remote-write messages by Google's protobuf library, from descriptors made here: senders and oracle of the tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import cramjam
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tsdb.model.stale import STALE

_TYPES = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "string": _TYPES.TYPE_STRING,
    "bytes": _TYPES.TYPE_BYTES,
    "double": _TYPES.TYPE_DOUBLE,
    "int64": _TYPES.TYPE_INT64,
    "sint32": _TYPES.TYPE_SINT32,
    "sint64": _TYPES.TYPE_SINT64,
    "uint32": _TYPES.TYPE_UINT32,
    "uint64": _TYPES.TYPE_UINT64,
}

# A field is `number name type`, with `*` before the type when it is repeated, and the name of its oneof behind it.
# Labels are bytes, so that a test can send
# what is not UTF-8.
_HISTOGRAM = """1 count_int uint64 count|2 count_float double count|3 sum double|4 schema sint32
|5 zero_threshold double|6 zero_count_int uint64 zero_count|7 zero_count_float double zero_count
|8 negative_spans *BucketSpan|9 negative_deltas *sint64|10 negative_counts *double|11 positive_spans *BucketSpan
|12 positive_deltas *sint64|13 positive_counts *double|14 reset_hint uint32|15 timestamp int64
|16 custom_values *double|17 start_timestamp int64"""
_SPAN = "1 offset sint32|2 length uint32"
_ONE = {
    "WriteRequest": "1 timeseries *TimeSeries|3 metadata *MetricMetadata",
    "TimeSeries": "1 labels *Label|2 samples *Sample|3 exemplars *Exemplar|4 histograms *Histogram",
    "Label": "1 name bytes|2 value bytes",
    "Sample": "1 value double|2 timestamp int64",
    "Exemplar": "1 labels *Label|2 value double|3 timestamp int64",
    "MetricMetadata": "1 type uint32|2 metric_family_name string|4 help string|5 unit string",
    "BucketSpan": _SPAN,
    "Histogram": _HISTOGRAM,
}
_TWO = {
    "Request": "4 symbols *bytes|5 timeseries *TimeSeries",
    "TimeSeries": "1 labels_refs *uint32|2 samples *Sample|3 histograms *Histogram|4 exemplars *Exemplar"
    "|5 metadata Metadata|6 created_timestamp int64",
    "Sample": "1 value double|2 timestamp int64|3 start_timestamp int64",
    "Exemplar": "1 labels_refs *uint32|2 value double|3 timestamp int64",
    "Metadata": "1 type uint32|3 help_ref uint32|4 unit_ref uint32",
    "BucketSpan": _SPAN,
    "Histogram": _HISTOGRAM,
}


def _messages(package: str, messages: Mapping[str, str]) -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for text in fields.replace("\n", "").split("|"):
            number, field_name, kind, *oneof = text.split()
            field = message.field.add(name=field_name, number=int(number))
            field.label = _TYPES.LABEL_REPEATED if kind.startswith("*") else _TYPES.LABEL_OPTIONAL
            kind = kind.lstrip("*")
            field.type = _SCALARS.get(kind, _TYPES.TYPE_MESSAGE)
            if kind not in _SCALARS:
                field.type_name = f".{package}.{kind}"
            if oneof:
                if not message.oneof_decl or message.oneof_decl[-1].name != oneof[0]:
                    message.oneof_decl.add(name=oneof[0])
                field.oneof_index = len(message.oneof_decl) - 1
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}")) for name in messages}


ONE = _messages("test.one", _ONE)
TWO = _messages("test.two", _TWO)

Labels = Mapping[str, str] | Sequence[tuple[bytes, bytes]]
Samples = Iterable[tuple[int, float]]


def pairs(labels: Labels) -> list[tuple[bytes, bytes]]:
    """Labels as bytes, in their order."""
    if isinstance(labels, Mapping):
        return [(name.encode(), value.encode()) for name, value in labels.items()]
    return list(labels)


def request_1(series: Iterable[tuple[Labels, Samples]], metadata: Iterable[tuple[str, int, str, str]] = ()) -> Any:
    """A WriteRequest; samples are (ts_ms, value), metadata (family, type, help, unit)."""
    request = ONE["WriteRequest"]()
    for labels, samples in series:
        one = request.timeseries.add()
        for name, value in pairs(labels):
            one.labels.add(name=name, value=value)
        for ts_ms, number in samples:
            one.samples.add(value=number, timestamp=ts_ms)
    for family, kind, help_text, unit in metadata:
        request.metadata.add(metric_family_name=family, type=kind, help=help_text, unit=unit)
    return request


class Symbols:
    """The symbols of a request of version 2."""

    def __init__(self) -> None:
        self.texts = [b""]
        self._numbers = {b"": 0}

    def __call__(self, text: bytes | str) -> int:
        text = text.encode() if isinstance(text, str) else text
        if text not in self._numbers:
            self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return self._numbers[text]


def request_2(series: Iterable[tuple[Labels, Samples]], metadata: tuple[int, str, str] | None = None) -> Any:
    """A Request of version 2; metadata: (type, help, unit) of every series."""
    request, symbols = TWO["Request"](), Symbols()
    for labels, samples in series:
        one = request.timeseries.add()
        one.labels_refs.extend(symbols(part) for pair in pairs(labels) for part in pair)
        for ts_ms, number in samples:
            one.samples.add(value=number, timestamp=ts_ms)
        if metadata is not None:
            kind, help_text, unit = metadata
            one.metadata.type, one.metadata.help_ref, one.metadata.unit_ref = kind, symbols(help_text), symbols(unit)
    request.symbols.extend(symbols.texts)
    return request


def snappy(message: Any) -> bytes:
    """The body of a request."""
    data = message if isinstance(message, bytes) else message.SerializeToString()
    return bytes(cramjam.snappy.compress_raw(data))


# Labels, samples and exemplars of a series; an exemplar has a time, a value and labels.
WithExemplars = tuple[Mapping[str, str], Sequence[tuple[int, float]], Sequence[tuple[int, float, Any]]]


def exemplars_1(*series: WithExemplars) -> Any:
    """A request of remote write 1.0."""
    message = request_1([(labels, list(samples)) for labels, samples, _ in series])
    for target, (_, _, exemplars) in zip(message.timeseries, series, strict=True):
        for ts_ms, value, labels in exemplars:
            added = target.exemplars.add(value=value, timestamp=ts_ms)
            for name, text in pairs(labels):
                added.labels.add(name=name, value=text)
    return message


def exemplars_2(*series: WithExemplars) -> Any:
    """A request of remote write 2.0."""
    message = request_2([(labels, list(samples)) for labels, samples, _ in series])
    symbols = Symbols()
    for text in message.symbols:
        symbols(text)
    for target, (_, _, exemplars) in zip(message.timeseries, series, strict=True):
        for ts_ms, value, labels in exemplars:
            references = [symbols(part) for pair in pairs(labels) for part in pair]
            target.exemplars.add(value=value, timestamp=ts_ms, labels_refs=references)
    del message.symbols[:]
    message.symbols.extend(symbols.texts)
    return message


def add_histogram(message: Any, ts_ms: int, *, floats: bool = False, stale: bool = False) -> None:
    """Add a native histogram of schema 0 to the first series of a request. It has one value in (0.5, 1], two in (1, 2],
    a gap, one in (8, 16], one zero and one negative value.
    """
    one = message.timeseries[0].histograms.add(schema=0, zero_threshold=0.001, timestamp=ts_ms)
    one.sum = STALE if stale else 18.5
    if stale:
        return
    one.positive_spans.add(offset=0, length=2)
    one.positive_spans.add(offset=2, length=1)
    one.negative_spans.add(offset=1, length=1)
    if floats:
        one.count_float, one.zero_count_float = 6.0, 1.0
        one.positive_counts.extend([1.0, 2.0, 1.0])
        one.negative_counts.extend([1.0])
    else:
        one.count_int, one.zero_count_int = 6, 1
        one.positive_deltas.extend([1, 1, -1])
        one.negative_deltas.extend([1])
