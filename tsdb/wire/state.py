"""Converts partition states, options and matchers of reads between tsdb.answer and proto/tsdb/v1/common.proto."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tsdb.answer.spec import ReadOptions, ReadToken
from tsdb.answer.state import MemoryState
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import Matcher, MatchType
from tsdb.v1 import common_pb2, reader_pb2


class RequestToken(NamedTuple):
    """A ReadToken of a request."""

    topic_id: str
    partition: int
    record_offset: int


def encode_state(state: MemoryState) -> common_pb2.PartitionState:
    message = common_pb2.PartitionState(
        partition=state.partition,
        topic_id=state.topic_id,
        since_offset=state.since_offset,
        coverage_start_ms=state.coverage_start_ms,
        applied_offset=state.applied_offset,
        next_offset=state.next_offset,
        high_watermark=state.high_watermark,
        lag_records=state.lag_records,
        lag_ms=state.lag_ms,
        from_start=state.from_start,
        ready=state.ready,
        reason=state.reason,
        watermark_ms=state.watermark_ms,
        series=state.series,
        samples=state.samples,
        bytes=state.bytes,
    )
    for hole in state.holes:
        message.holes.add(
            partition=hole.partition,
            start_ms=hole.start_ms,
            end_ms=hole.end_ms,
            reason=hole.reason,
            record_offset=hole.record_offset,
            pack_id=hole.pack_id,
        )
    return message


def decode_state(message: common_pb2.PartitionState) -> MemoryState:
    return MemoryState(
        partition=message.partition,
        topic_id=message.topic_id,
        since_offset=message.since_offset,
        coverage_start_ms=message.coverage_start_ms,
        applied_offset=message.applied_offset if message.HasField("applied_offset") else None,
        next_offset=message.next_offset,
        high_watermark=message.high_watermark,
        lag_records=message.lag_records,
        lag_ms=message.lag_ms,
        from_start=message.from_start,
        ready=message.ready,
        reason=message.reason,
        holes=tuple(
            HoleRecord(hole.partition, hole.pack_id, hole.start_ms, hole.end_ms, hole.reason, hole.record_offset)
            for hole in message.holes
        ),
        watermark_ms=message.watermark_ms if message.HasField("watermark_ms") else None,
        series=message.series,
        samples=message.samples,
        bytes=message.bytes,
    )


def encode_header(states: Iterable[MemoryState], warnings: Iterable[str]) -> reader_pb2.SelectHeader:
    return reader_pb2.SelectHeader(partitions=map(encode_state, states), warnings=warnings)


def decode_states(header: reader_pb2.SelectHeader) -> tuple[MemoryState, ...]:
    return tuple(map(decode_state, header.partitions))


def encode_coverage(states: Iterable[MemoryState], experiment: str) -> reader_pb2.CoverageResponse:
    """The coverage of a process of this experiment; empty for production. An experiment's coverage has no partitions
    for queriers of production, so they route no read there.
    """
    encoded = list(map(encode_state, states))
    if not experiment:
        return reader_pb2.CoverageResponse(partitions=encoded)
    return reader_pb2.CoverageResponse(experiment=reader_pb2.Experiment(name=experiment, partitions=encoded))


def coverage_states(answer: reader_pb2.CoverageResponse) -> Sequence[common_pb2.PartitionState]:
    """The states of production or of an experiment, in the order of the answer."""
    return answer.experiment.partitions if answer.HasField("experiment") else answer.partitions


def encode_options(options: ReadOptions) -> reader_pb2.ReadOptions:
    return reader_pb2.ReadOptions(
        allow_stale=options.allow_stale,
        max_lag_ms=options.max_lag_ms,
        after=map(encode_token, options.after),
        allow_holes=options.allow_holes,
        partitions=options.partitions,
    )


def decode_options(message: reader_pb2.ReadOptions) -> ReadOptions:
    return ReadOptions(
        after=decode_tokens(message.after),
        allow_stale=message.allow_stale,
        max_lag_ms=message.max_lag_ms if message.HasField("max_lag_ms") else None,
        allow_holes=message.allow_holes,
        partitions=tuple(message.partitions),
    )


def encode_token(token: ReadToken) -> common_pb2.Token:
    return common_pb2.Token(topic_id=token.topic_id, partition=token.partition, record_offset=token.record_offset)


def decode_tokens(messages: Iterable[common_pb2.Token]) -> tuple[RequestToken, ...]:
    return tuple(RequestToken(one.topic_id, one.partition, one.record_offset) for one in messages)


def encode_matchers(matchers: Iterable[Matcher]) -> list[common_pb2.Matcher]:
    return [
        common_pb2.Matcher(type=common_pb2.Matcher.Type.ValueType(one.type.value), name=one.name, value=one.value)
        for one in matchers
    ]


def decode_matchers(messages: Sequence[common_pb2.Matcher]) -> tuple[Matcher, ...]:
    """Raises InvalidRequest (bad_matcher) for an unknown type."""
    return tuple(map(_decode_matcher, messages))


def _decode_matcher(message: common_pb2.Matcher) -> Matcher:
    try:
        return Matcher(MatchType(message.type), message.name, message.value)
    except ValueError:
        raise InvalidRequest(f"matcher type {message.type} is unknown", reason="bad_matcher") from None
