"""Encodes and decodes reads of series and labels: requests and answers (proto/tsdb/v1/reader.proto)."""

from __future__ import annotations

from tsdb.answer.answer import LabelsAnswer, SeriesAnswer, malformed
from tsdb.answer.spec import LabelsSpec, SeriesSpec
from tsdb.v1 import reader_pb2
from tsdb.wire.select import decode_block, encode_block
from tsdb.wire.state import (
    decode_matchers,
    decode_options,
    decode_states,
    encode_header,
    encode_matchers,
    encode_options,
)


def encode_series(spec: SeriesSpec) -> reader_pb2.SeriesRequest:
    return reader_pb2.SeriesRequest(
        matchers=encode_matchers(spec.matchers),
        start_ms=spec.start_ms,
        end_ms=spec.end_ms,
        group_by=spec.group_by,
        options=encode_options(spec.options),
        series_max=spec.series_max,
        partial=spec.partial,
    )


def decode_series(request: reader_pb2.SeriesRequest) -> SeriesSpec:
    """The spec, checked. Raises InvalidRequest."""
    spec = SeriesSpec(
        matchers=decode_matchers(request.matchers),
        start_ms=request.start_ms if request.HasField("start_ms") else None,
        end_ms=request.end_ms if request.HasField("end_ms") else None,
        group_by=tuple(request.group_by),
        partial=request.partial,
        options=decode_options(request.options),
        series_max=request.series_max,
    )
    spec.check()
    return spec


def encode_series_answer(answer: SeriesAnswer) -> reader_pb2.SeriesResponse:
    if answer.states is not None:
        return reader_pb2.SeriesResponse(header=encode_header(answer.states, answer.warnings))
    if answer.groups is not None:
        groups = [
            reader_pb2.SeriesGroups.Group(values=values, series=count)
            for values, count in sorted(answer.groups.items())
        ]
        return reader_pb2.SeriesResponse(groups=reader_pb2.SeriesGroups(groups=groups))
    assert answer.series is not None, "a part has states, groups or series"
    return reader_pb2.SeriesResponse(series=encode_block(answer.series))


def decode_series_answer(message: reader_pb2.SeriesResponse) -> SeriesAnswer:
    """Raises CorruptData (answer_malformed)."""
    match message.WhichOneof("frame"):
        case "header":
            return SeriesAnswer(states=decode_states(message.header), warnings=tuple(message.header.warnings))
        case "series":
            return SeriesAnswer(series=decode_block(message.series))
        case "groups":
            return SeriesAnswer(groups={tuple(one.values): one.series for one in message.groups.groups})
        case _:
            raise malformed("a frame of no kind in an answer of series")


def encode_labels(spec: LabelsSpec) -> reader_pb2.LabelNamesRequest | reader_pb2.LabelValuesRequest:
    matchers, options = encode_matchers(spec.matchers), encode_options(spec.options)
    if spec.name is None:
        return reader_pb2.LabelNamesRequest(
            matchers=matchers, options=options, start_ms=spec.start_ms, end_ms=spec.end_ms
        )
    return reader_pb2.LabelValuesRequest(
        name=spec.name,
        matchers=matchers,
        options=options,
        values_max=spec.values_max,
        start_ms=spec.start_ms,
        end_ms=spec.end_ms,
    )


def decode_labels(request: reader_pb2.LabelNamesRequest | reader_pb2.LabelValuesRequest) -> LabelsSpec:
    """The spec, checked. Raises InvalidRequest."""
    values = request if isinstance(request, reader_pb2.LabelValuesRequest) else None
    spec = LabelsSpec(
        matchers=decode_matchers(request.matchers),
        start_ms=request.start_ms if request.HasField("start_ms") else None,
        end_ms=request.end_ms if request.HasField("end_ms") else None,
        name=None if values is None else values.name,
        values_max=0 if values is None else values.values_max,
        options=decode_options(request.options),
    )
    spec.check()
    return spec


def encode_names(answer: LabelsAnswer) -> reader_pb2.LabelNamesResponse:
    header = encode_header(answer.states, answer.warnings)
    return reader_pb2.LabelNamesResponse(header=header, names=sorted(answer.texts))


def encode_values(answer: LabelsAnswer) -> reader_pb2.LabelValuesResponse:
    header = encode_header(answer.states, answer.warnings)
    return reader_pb2.LabelValuesResponse(header=header, values=sorted(answer.texts))


def decode_names(message: reader_pb2.LabelNamesResponse) -> LabelsAnswer:
    return LabelsAnswer(decode_states(message.header), tuple(message.header.warnings), message.names)


def decode_values(message: reader_pb2.LabelValuesResponse) -> LabelsAnswer:
    return LabelsAnswer(decode_states(message.header), tuple(message.header.warnings), message.values)
