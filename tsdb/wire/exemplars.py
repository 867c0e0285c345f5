"""Encodes and decodes reads of exemplars: requests and answers (proto/tsdb/v1/reader.proto)."""

from __future__ import annotations

import numpy as np

from tsdb.answer.answer import ExemplarsAnswer, malformed
from tsdb.answer.spec import ExemplarsSpec
from tsdb.codec.records.exemplar_record import Exemplars
from tsdb.v1 import reader_pb2
from tsdb.wire.fields import F64, I64, U32, unpack
from tsdb.wire.select import decode_block, encode_block
from tsdb.wire.state import (
    decode_matchers,
    decode_options,
    decode_states,
    encode_header,
    encode_matchers,
    encode_options,
)


def encode_exemplars_spec(spec: ExemplarsSpec) -> reader_pb2.ExemplarsRequest:
    return reader_pb2.ExemplarsRequest(
        matchers=encode_matchers(spec.matchers),
        start_ms=spec.start_ms,
        end_ms=spec.end_ms,
        options=encode_options(spec.options),
    )


def decode_exemplars_spec(request: reader_pb2.ExemplarsRequest) -> ExemplarsSpec:
    """The spec, checked. Raises InvalidRequest."""
    spec = ExemplarsSpec(
        decode_matchers(request.matchers), request.start_ms, request.end_ms, decode_options(request.options)
    )
    spec.check()
    return spec


def encode_exemplars_answer(answer: ExemplarsAnswer) -> reader_pb2.ExemplarsResponse:
    if answer.states is not None:
        return reader_pb2.ExemplarsResponse(header=encode_header(answer.states, answer.warnings))
    assert answer.series is not None, "a part has states or series"
    assert answer.exemplars is not None, "series come with their exemplars"
    found = answer.exemplars
    _, counts = np.unique(found.series_id, return_counts=True)
    return reader_pb2.ExemplarsResponse(
        series=encode_block(answer.series),
        counts=counts.astype(U32).tobytes(),
        ts_ms=found.ts_ms.astype(I64, copy=False).tobytes(),
        values=found.values.astype(F64, copy=False).tobytes(),
        label_lengths=np.diff(found.label_starts).astype(U32).tobytes(),
        labels=found.labels.tobytes(),
    )


def decode_exemplars_answer(message: reader_pb2.ExemplarsResponse) -> ExemplarsAnswer:
    """Raises CorruptData (answer_malformed)."""
    if message.HasField("header"):
        return ExemplarsAnswer(decode_states(message.header), tuple(message.header.warnings))
    series = decode_block(message.series)
    counts = unpack(message.counts, U32, "counts", len(series))
    total = int(counts.sum(dtype=np.int64))
    ts_ms = unpack(message.ts_ms, I64, "ts_ms", total)
    starts = np.zeros(total + 1, np.int64)
    np.cumsum(unpack(message.label_lengths, U32, "label_lengths", total), out=starts[1:])
    if starts[-1] != len(message.labels):
        raise malformed(f"labels have {len(message.labels)} bytes, lengths say {starts[-1]}")
    labels = np.frombuffer(message.labels, np.uint8)
    values = unpack(message.values, F64, "values", total)
    exemplars = Exemplars(np.repeat(series.series_ids, counts), ts_ms, values, labels, starts)
    return ExemplarsAnswer(series=series, exemplars=exemplars)
