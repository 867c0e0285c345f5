"""Requests of the Reader service: checked, and converted from messages. All bad input is refused here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.model.errors import InvalidRequest, WrongTopic
from tsdb.model.selector import MATCHERS_MAX, Matcher, MatchType
from tsdb.model.window import TIME_MAX_MS
from tsdb.v1 import common_pb2, reader_pb2

STEPS_MAX = 100_000  # Most steps of one series in one answer.
TOKENS_MAX = 10_000
NO_RECORD = -1  # Stands in a token for a position before the first record of the partition.
_AGGREGATIONS = frozenset(reader_pb2.Aggregation.values())


@dataclass(frozen=True, slots=True)
class SelectSpec:
    """A valid Select. Range half-open, ms. `series_ids`: uint64, ascending, unique; None: use matchers."""

    matchers: tuple[Matcher, ...]
    series_ids: NDArray[np.uint64] | None
    start_ms: int
    end_ms: int
    step_ms: int
    aggregation: int
    last_n: int
    columns: bool
    labels: bool
    partial: bool
    downsampled: bool = False


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """A valid Series request. Without matchers it selects every series.

    ranged: only series with a sample in [start_ms, end_ms). Without start_given the range begins with the oldest sample
    in memory. needed_end_ms: samples from then on do not matter to the caller.

    """

    matchers: tuple[Matcher, ...]
    ranged: bool
    start_given: bool
    start_ms: int
    end_ms: int
    group_by: tuple[str, ...]
    needed_end_ms: int


@dataclass(frozen=True, slots=True)
class LabelsSpec:
    """A valid request for label names or values. Without matchers it selects every series.

    start_ms: None: all series in memory. end_ms: exclusive.

    """

    matchers: tuple[Matcher, ...]
    start_ms: int | None
    end_ms: int


def select_spec(request: reader_pb2.SelectRequest) -> SelectSpec:
    """Check a Select. Raises InvalidRequest naming field, got and limit."""
    check_range(request.start_ms, request.end_ms)
    _check_steps(request)
    if request.encoding not in (reader_pb2.RAW, reader_pb2.COLUMNS):
        raise InvalidRequest(f"encoding {request.encoding} is unknown", reason="bad_encoding")
    columns = request.encoding == reader_pb2.COLUMNS
    if columns and (request.step_ms or request.last_n or request.partial):
        raise InvalidRequest("COLUMNS goes without step_ms, last_n and partial: use RAW", reason="bad_encoding")
    if bool(request.matchers) == bool(request.series_ids):
        raise InvalidRequest("give either matchers or series_ids", reason="bad_selector")
    if request.downsampled and not (request.step_ms and request.matchers):
        raise InvalidRequest("downsampled goes with step_ms and matchers", reason="bad_step")
    return SelectSpec(
        matchers_of(request.matchers),
        _series_ids(request.series_ids) if request.series_ids else None,
        request.start_ms,
        request.end_ms,
        request.step_ms,
        request.aggregation,
        request.last_n,
        columns,
        not request.omit_labels,
        request.partial,
        request.downsampled,
    )


def series_spec(request: reader_pb2.SeriesRequest) -> SeriesSpec:
    """Check a Series request. Raises InvalidRequest."""
    start_given = request.HasField("start_ms")
    start_ms = request.start_ms if start_given else -TIME_MAX_MS
    end_ms = request.end_ms if request.HasField("end_ms") else TIME_MAX_MS
    check_range(start_ms, end_ms)
    ranged = (start_given or request.HasField("end_ms")) and not request.partial
    matchers = matchers_of(request.matchers)
    return SeriesSpec(matchers, ranged, start_given, start_ms, end_ms, tuple(request.group_by), end_ms)


def labels_spec(request: reader_pb2.LabelNamesRequest | reader_pb2.LabelValuesRequest) -> LabelsSpec:
    """Check a request for labels. Raises InvalidRequest."""
    start_ms = request.start_ms if request.HasField("start_ms") else None
    end_ms = request.end_ms if request.HasField("end_ms") else TIME_MAX_MS
    check_range(-TIME_MAX_MS if start_ms is None else start_ms, end_ms)
    return LabelsSpec(matchers_of(request.matchers), start_ms, end_ms)


def matchers_of(messages: Iterable[common_pb2.Matcher]) -> tuple[Matcher, ...]:
    """Decode matchers of the wire. Raises InvalidRequest (bad_matcher)."""
    matchers = tuple(_matcher(message) for message in messages)
    if len(matchers) > MATCHERS_MAX:
        raise InvalidRequest(f"{len(matchers)} matchers; limit is {MATCHERS_MAX}", reason="bad_matcher")
    return matchers


def check_range(start_ms: int, end_ms: int) -> None:
    """Raises InvalidRequest (bad_range) when [start_ms, end_ms) is empty or beyond the limits of time."""
    if not (-TIME_MAX_MS <= start_ms <= TIME_MAX_MS and -TIME_MAX_MS <= end_ms <= TIME_MAX_MS):
        raise InvalidRequest(f"range [{start_ms}, {end_ms}) is beyond +-2^61 ms", reason="bad_range")
    if start_ms >= end_ms:
        what = "empty" if start_ms == end_ms else "reversed"
        raise InvalidRequest(f"range [{start_ms}, {end_ms}) is {what}; end_ms is exclusive", reason="bad_range")


def tokens_of(messages: Iterable[common_pb2.Token], topic_id: str, known: Iterable[int]) -> dict[int, int]:
    """The highest record offset of each partition. Raises WrongTopic for a token of another topic, InvalidRequest
    (bad_token, bad_partition)."""
    tokens = list(messages)
    if not tokens:
        return {}
    if len(tokens) > TOKENS_MAX:
        raise InvalidRequest(f"{len(tokens)} tokens; limit is {TOKENS_MAX}", reason="bad_token")
    partitions = set(known)
    highest: dict[int, int] = {}
    for token in tokens:
        if token.topic_id != topic_id:
            raise WrongTopic(f"token is of topic {token.topic_id!r}; this log is topic {topic_id!r}")
        if token.partition not in partitions:
            raise InvalidRequest(f"token is of partition {token.partition}, not served here", reason="bad_partition")
        if token.record_offset < NO_RECORD:
            raise InvalidRequest(f"token has record_offset {token.record_offset}", reason="bad_token")
        highest[token.partition] = max(highest.get(token.partition, NO_RECORD), token.record_offset)
    return highest


def partitions_of(requested: Iterable[int], known: Iterable[int]) -> list[int]:
    """Partitions to answer from, ascending. Raises InvalidRequest (bad_partition) for one not served here."""
    served = sorted(known)
    wanted = sorted(set(requested))
    missing = [partition for partition in wanted if partition not in served]
    if missing:
        raise InvalidRequest(f"partitions {missing[:10]} are not served here; served: {served}", reason="bad_partition")
    return wanted or served


def _matcher(message: common_pb2.Matcher) -> Matcher:
    if not message.name:
        raise InvalidRequest("a matcher without a label name", reason="bad_matcher")
    try:
        return Matcher(MatchType(message.type), message.name, message.value)
    except ValueError:
        raise InvalidRequest(f"matcher type {message.type} is unknown", reason="bad_matcher") from None


def _series_ids(data: bytes) -> NDArray[np.uint64]:
    if len(data) % 8:
        raise InvalidRequest(f"series_ids has {len(data)} bytes, not a multiple of 8", reason="bad_series_ids")
    return np.unique(np.frombuffer(data, "<u8"))


def _check_steps(request: reader_pb2.SelectRequest) -> None:
    if request.aggregation not in _AGGREGATIONS:
        raise InvalidRequest(f"aggregation {request.aggregation} is unknown", reason="bad_step")
    if request.step_ms < 0:
        raise InvalidRequest(f"step_ms {request.step_ms} is negative", reason="bad_step")
    if bool(request.step_ms) != bool(request.aggregation):
        raise InvalidRequest("step_ms and aggregation go together", reason="bad_step")
    if not request.step_ms:
        return
    if request.last_n or request.partial:
        raise InvalidRequest("last_n and partial go without step_ms", reason="bad_step")
    steps = -(-(request.end_ms - request.start_ms) // request.step_ms)
    if steps > STEPS_MAX:
        raise InvalidRequest(
            f"range has {steps} steps; limit is {STEPS_MAX}: ask for longer steps or a shorter range", reason="bad_step"
        )
