"""Specs: what each read asks of a store or a querier, as values. All bad input is refused by the checks here.

A range is [start_ms, end_ms), ms since the epoch UTC. Limits of 0 mean those of the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tsdb.model.errors import InvalidRequest, WrongTopic
from tsdb.model.selector import MATCHERS_MAX, Matcher
from tsdb.model.window import TIME_MAX_MS

STEPS_MAX = 100_000  # Steps of one series in one answer.
TOKENS_MAX = 10_000
NO_RECORD = -1  # In a token this value means the position before the first record of the partition.
AGGREGATIONS = ("none", "last", "avg", "min", "max", "sum", "count")  # Names by their number in a spec.


class ReadToken(Protocol):
    """Names a record of the log."""

    @property
    def topic_id(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def record_offset(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Deviations from an exact and fresh answer that the reader accepts; by default none.

    after: tokens of writes that the answer must contain; the server waits for them within the timeout.
    allow_stale: answer although a partition lags. max_lag_ms: refuse above this lag; None: the server's bound.
    allow_holes: answer although a named loss touches the range. partitions: read only these; empty: all of the server.
    """

    after: Sequence[ReadToken] = ()
    allow_stale: bool = False
    max_lag_ms: int | None = None
    allow_holes: bool = False
    partitions: Sequence[int] = ()


EXACT = ReadOptions()


@dataclass(frozen=True, slots=True)
class SelectSpec:
    """Samples of series, by matchers or by ids. series_ids: uint64, ascending, unique; None: use matchers.

    step_ms with aggregation, an index in AGGREGATIONS: one sample for each step. last_n: only the newest n samples of
    each series. columns: sealed columns as they lie. partial: also the samples below coverage, with their orders;
    queriers need them. untrimmed: the reader trims samples, so those of overlays too may lie outside the range; a store
    of another process does not do this.
    """

    matchers: tuple[Matcher, ...]
    series_ids: NDArray[np.uint64] | None
    start_ms: int
    end_ms: int
    step_ms: int = 0
    aggregation: int = 0
    last_n: int = 0
    columns: bool = False
    labels: bool = True
    partial: bool = False
    downsampled: bool = False
    untrimmed: bool = False
    options: ReadOptions = EXACT
    series_max: int = 0
    samples_max: int = 0
    bytes_max: int = 0

    def check(self) -> None:
        """Raises InvalidRequest naming field, got and limit."""
        check_range(self.start_ms, self.end_ms)
        if self.step_ms or self.aggregation:
            self._check_steps()
        if self.columns and (self.step_ms or self.last_n or self.partial):
            raise InvalidRequest("COLUMNS goes without step_ms, last_n and partial: use RAW", reason="bad_encoding")
        if bool(self.matchers) == (self.series_ids is not None):
            raise InvalidRequest("give either matchers or series_ids", reason="bad_selector")
        if self.downsampled and not (self.step_ms and self.matchers):
            raise InvalidRequest("downsampled goes with step_ms and matchers", reason="bad_step")
        check_matchers(self.matchers)

    def _check_steps(self) -> None:
        if not 0 <= self.aggregation < len(AGGREGATIONS):
            raise InvalidRequest(f"aggregation {self.aggregation} is unknown", reason="bad_step")
        if self.step_ms < 0:
            raise InvalidRequest(f"step_ms {self.step_ms} is negative", reason="bad_step")
        if bool(self.step_ms) != bool(self.aggregation):
            raise InvalidRequest("step_ms and aggregation go together", reason="bad_step")
        if self.last_n or self.partial:
            raise InvalidRequest("last_n and partial go without step_ms", reason="bad_step")
        steps = -(-(self.end_ms - self.start_ms) // self.step_ms)
        if steps > STEPS_MAX:
            raise InvalidRequest(
                f"range has {steps} steps; limit is {STEPS_MAX}: ask for longer steps or a shorter range",
                reason="bad_step",
            )


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """Series with their first and last sample times, or their number by group. No matchers: every series.

    start_ms, end_ms: None means that the range is open on that side. With one of them only series with a sample in the
    range count; without start_ms the range begins with the oldest sample in memory. partial: every series in memory,
    for queriers; the range then limits only the check for lags.
    """

    matchers: tuple[Matcher, ...]
    start_ms: int | None = None
    end_ms: int | None = None
    group_by: tuple[str, ...] = ()
    partial: bool = False
    options: ReadOptions = EXACT
    series_max: int = 0

    @property
    def ranged(self) -> bool:
        """Whether only series with a sample in the range count."""
        return not self.partial and not (self.start_ms is None and self.end_ms is None)

    @property
    def first_ms(self) -> int:
        """Start of the range; the lowest possible time when the request has none."""
        return -TIME_MAX_MS if self.start_ms is None else self.start_ms

    @property
    def needed_end_ms(self) -> int:
        """Samples from then on do not matter to the caller."""
        return TIME_MAX_MS if self.end_ms is None else self.end_ms

    def check(self) -> None:
        """Raises InvalidRequest (bad_range, bad_matcher)."""
        check_range(self.first_ms, self.needed_end_ms)
        check_matchers(self.matchers)


@dataclass(frozen=True, slots=True)
class LabelsSpec:
    """Label names, or with `name` the values of one label. No matchers: every series.

    start_ms: None means all series in memory. end_ms: exclusive; None: open. values_max: 0: the server's limit.
    """

    matchers: tuple[Matcher, ...]
    start_ms: int | None = None
    end_ms: int | None = None
    name: str | None = None
    values_max: int = 0
    options: ReadOptions = EXACT

    @property
    def needed_end_ms(self) -> int:
        """Samples from then on do not matter to the caller."""
        return TIME_MAX_MS if self.end_ms is None else self.end_ms

    def check(self) -> None:
        """Raises InvalidRequest (bad_range, bad_matcher, bad_label)."""
        if self.name == "":
            raise InvalidRequest("label name is empty", reason="bad_label")
        check_range(-TIME_MAX_MS if self.start_ms is None else self.start_ms, self.needed_end_ms)
        check_matchers(self.matchers)


@dataclass(frozen=True, slots=True)
class ExemplarsSpec:
    """The exemplars of series that match; each exemplar's own time is in [start_ms, end_ms)."""

    matchers: tuple[Matcher, ...]
    start_ms: int
    end_ms: int
    options: ReadOptions = EXACT

    def check(self) -> None:
        """Raises InvalidRequest (bad_range, bad_matcher)."""
        if not self.matchers:
            raise InvalidRequest("a read of exemplars needs a matcher", reason="bad_matcher")
        check_range(self.start_ms, self.end_ms)
        check_matchers(self.matchers)


@dataclass(frozen=True, slots=True)
class WatchSpec:
    """The live samples of some series. partitions: empty: all of the server. resume: the last record seen of each
    partition; a partition without one starts now."""

    matchers: tuple[Matcher, ...]
    partitions: Sequence[int] = ()
    resume: Sequence[ReadToken] = ()

    def check(self) -> None:
        """Raises InvalidRequest (bad_matcher)."""
        check_matchers(self.matchers)


def check_matchers(matchers: Sequence[Matcher]) -> None:
    """Raises InvalidRequest (bad_matcher)."""
    if len(matchers) > MATCHERS_MAX:
        raise InvalidRequest(f"{len(matchers)} matchers; limit is {MATCHERS_MAX}", reason="bad_matcher")
    for matcher in matchers:
        if not matcher.name:
            raise InvalidRequest("a matcher without a label name", reason="bad_matcher")


def check_range(start_ms: int, end_ms: int) -> None:
    """Raises InvalidRequest (bad_range) when [start_ms, end_ms) is empty or beyond the limits of time."""
    if not (-TIME_MAX_MS <= start_ms <= TIME_MAX_MS and -TIME_MAX_MS <= end_ms <= TIME_MAX_MS):
        raise InvalidRequest(f"range [{start_ms}, {end_ms}) is beyond +-2^61 ms", reason="bad_range")
    if start_ms >= end_ms:
        what = "empty" if start_ms == end_ms else "reversed"
        raise InvalidRequest(f"range [{start_ms}, {end_ms}) is {what}; end_ms is exclusive", reason="bad_range")


def highest_offsets(tokens: Sequence[ReadToken], topic_id: str, known: Iterable[int]) -> dict[int, int]:
    """The highest record offset per partition. Raises WrongTopic for a token of another topic, InvalidRequest
    (bad_token, bad_partition)."""
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
    if not wanted:
        return served
    missing = sorted(set(wanted).difference(served))
    if missing:
        raise InvalidRequest(f"partitions {missing[:10]} are not served here; served: {served}", reason="bad_partition")
    return wanted
