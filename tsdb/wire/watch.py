"""Converts watches between tsdb.answer and proto/tsdb/v1/reader.proto."""

from __future__ import annotations

import numpy as np

from tsdb.answer.answer import RawResult, WatchAnswer
from tsdb.answer.spec import WatchSpec
from tsdb.v1 import reader_pb2
from tsdb.wire.fields import F64, I64, U64, unpack
from tsdb.wire.select import decode_block, decode_sections, encode_block, encode_details
from tsdb.wire.state import decode_matchers, decode_tokens, encode_matchers, encode_token

BUCKETS_MAX = 1 << 20  # Bucket counts of one record, which is an answer alone where it has more than other answers.


def encode_watch(spec: WatchSpec) -> reader_pb2.WatchRequest:
    request = reader_pb2.WatchRequest(matchers=encode_matchers(spec.matchers), partitions=spec.partitions)
    getattr(request, "from").extend(map(encode_token, spec.resume))  # `from` is a keyword of Python.
    return request


def decode_watch(request: reader_pb2.WatchRequest) -> WatchSpec:
    """A checked spec. Raises InvalidRequest (bad_matcher)."""
    tokens = decode_tokens(getattr(request, "from"))
    spec = WatchSpec(decode_matchers(request.matchers), tuple(request.partitions), tokens)
    spec.check()
    return spec


def encode_watch_answer(answer: WatchAnswer) -> reader_pb2.WatchResponse:
    raw = RawResult(np.array([len(answer.ts_ms)], np.uint32), answer.ts_ms, answer.values, details=answer.details)
    return reader_pb2.WatchResponse(
        partition=answer.partition,
        topic_id=answer.topic_id,
        last_record_offset=answer.last_record_offset,
        record_offsets=answer.record_offsets.astype(I64, copy=False).tobytes(),
        series_ids=answer.series_ids.astype(U64, copy=False).tobytes(),
        ts_ms=answer.ts_ms.astype(I64, copy=False).tobytes(),
        values=answer.values.astype(F64, copy=False).tobytes(),
        series=None if answer.series is None else encode_block(answer.series),
        warning=answer.warning,
        **encode_details(raw),
    )


def decode_watch_answer(message: reader_pb2.WatchResponse) -> WatchAnswer:
    """Raises CorruptData (answer_malformed)."""
    ts_ms = unpack(message.ts_ms, I64, "ts_ms")
    values = unpack(message.values, F64, "values", len(ts_ms))
    raw = RawResult(np.array([len(ts_ms)], np.uint32), ts_ms, values)
    return WatchAnswer(
        message.partition,
        message.topic_id,
        message.last_record_offset,
        message.warning,
        unpack(message.record_offsets, I64, "record_offsets", len(ts_ms)),
        unpack(message.series_ids, U64, "series_ids", len(ts_ms)),
        ts_ms,
        values,
        decode_block(message.series) if message.HasField("series") else None,
        decode_sections(message, raw, BUCKETS_MAX),
    )
