"""Limits of the gateway: bound one request, one series, and all requests together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.records.log_record import RECORD_BYTES_MAX
from tsdb.model import defaults
from tsdb.model.errors import ConfigMismatch, InvalidRequest
from tsdb.model.labels import LabelLimits

_MIB = 1024 * 1024
REQUESTS, SAMPLES = 0, 1  # Columns of all arrays of rates and levels.
UNLIMITED = 1e15  # Requests or samples a second. A finite number, so that levels stay numbers.


@dataclass(frozen=True, slots=True)
class SeriesLimits:
    """Limits of the active series of a source and of the gateway. of_source: limits of single sources, by source
    hash."""

    source_series_max: int = defaults.SOURCE_SERIES_MAX
    gateway_series_max: int = defaults.GATEWAY_SERIES_MAX
    of_source: Mapping[int, int] = field(default_factory=dict)

    def source_maxima(self, sources: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The limit of each source hash."""
        if not self.of_source:
            return np.full(len(sources), self.source_series_max, np.int64)
        own = (self.of_source.get(source, self.source_series_max) for source in sources.tolist())
        return np.fromiter(own, np.int64, len(sources))


@dataclass(frozen=True, slots=True)
class Rate:
    """None means no limit; 0 refuses every request. name: name of a token, for messages. limited: whether any of both
    is limited."""

    requests_per_s: float | None = None
    samples_per_s: float | None = None
    name: str = ""
    limited: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        limited = self.requests_per_s is not None or self.samples_per_s is not None
        object.__setattr__(self, "limited", limited)


@dataclass(frozen=True, slots=True)
class RateLimits:
    """default: rates of each holder. own: rates of single holders, by their hash; a rate that is left open there is as
    in `default`.

    burst_s: a holder that was quiet may bring this many seconds of its rate at once. limited: whether any holder is
    limited; each request asks for it.
    """

    default: Rate = field(default_factory=Rate)
    own: Mapping[int, Rate] = field(default_factory=dict)
    burst_s: float = defaults.RATE_BURST_S
    limited: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "limited", self.default.limited or bool(self.own))

    def rates(self, holders: Sequence[int]) -> NDArray[np.float64]:
        """float64 (holders, 2), a second; UNLIMITED where there is no limit."""
        if not self.own:
            return np.tile(_columns(self.default), (len(holders), 1))
        found = np.array([_columns(self.own.get(holder, Rate())) for holder in holders], np.float64).reshape(-1, 2)
        return np.where(found < UNLIMITED, found, _columns(self.default))


@dataclass(frozen=True, slots=True)
class IngestLimits:
    """Bounds of the write path, each inclusive. Raises ConfigMismatch (ingest_limits) when they contradict each other.

    request_bytes_max: labels and sample arrays of one request; above it INVALID_ARGUMENT. series_max, samples_max: rows
    and samples of one request. exemplars_max: exemplars of one request; the others are dropped. inflight_bytes_max: the
    bound on the bytes of all requests whose records the log has not answered; above it RESOURCE_EXHAUSTED.
    series_table_bytes: memory of the series that the gateway remembers. series: active series of one source and of the
    gateway. source_rates, token_rates: requests and samples a second.
    limits_file: all of these, read while running. record_bytes_max: the largest size of one log record; larger requests
    are split. produce_timeout_s: longest wait for the log; the caller's deadline may be shorter.
    """

    labels: LabelLimits = field(default_factory=LabelLimits)
    request_bytes_max: int = defaults.REQUEST_BYTES_MAX
    series_max: int = defaults.REQUEST_SERIES_MAX
    samples_max: int = defaults.REQUEST_SAMPLES_MAX
    exemplars_max: int = defaults.REQUEST_EXEMPLARS_MAX
    inflight_bytes_max: int = defaults.INFLIGHT_BYTES_MAX
    series_table_bytes: int = defaults.SERIES_TABLE_BYTES
    series: SeriesLimits = field(default_factory=SeriesLimits)
    source_rates: RateLimits = field(default_factory=RateLimits)
    token_rates: RateLimits = field(default_factory=RateLimits)
    limits_file: Path | None = None
    record_bytes_max: int = RECORD_BYTES_MAX
    produce_timeout_s: float = defaults.PRODUCE_TIMEOUT_S

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, int | float) and value <= 0 and name != "exemplars_max":
                raise _contradiction(f"{name} is {value}; it must be above 0")
        if self.inflight_bytes_max < self.request_bytes_max:
            raise _contradiction(
                f"inflight_bytes_max is {self.inflight_bytes_max}; it must hold one request of request_bytes_max "
                f"{self.request_bytes_max}"
            )
        if self.record_bytes_max > RECORD_BYTES_MAX:
            raise _contradiction(f"record_bytes_max is {self.record_bytes_max}; readers take up to {RECORD_BYTES_MAX}")


def check_limit(what: str, got: int, limit: int, setting: str, reason: str) -> None:
    """Raises InvalidRequest when a request has more series, samples or bytes (`got`) than a setting allows."""
    if got > limit:
        raise InvalidRequest(
            f"the request has {got} {what}; limit is {limit} ({setting}): split it", reason=reason, got=got, limit=limit
        )


def _contradiction(message: str) -> ConfigMismatch:
    return ConfigMismatch(message, reason="ingest_limits")


def _columns(rate: Rate) -> tuple[float, float]:
    return (
        UNLIMITED if rate.requests_per_s is None else rate.requests_per_s,
        UNLIMITED if rate.samples_per_s is None else rate.samples_per_s,
    )
