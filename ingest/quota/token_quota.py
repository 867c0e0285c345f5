"""Quota of bearer tokens: it is checked before a request is read, so that a refused request costs only its header.

A request is counted when it begins, and its samples once they are decoded. The token itself is never kept: a holder is
its SHA-256.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ingest.limits import Rate, RateLimits
from ingest.quota.buckets import TOKEN, RateBuckets, Taken, unit_over
from ingest.refusals import count_refused_request
from tsdb.model.clock import Clock
from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.ops.auth import bearer_token, token_digest

REASONS = ("token_requests_limit", "token_samples_limit")  # Reasons by column of the rates.
_WHAT = ("requests", "samples")
_NO_SAMPLES = np.zeros(1)


class TokenQuota:
    """Thread-safe. limits: returns the current ones."""

    def __init__(self, limits: Callable[[], RateLimits], clock: Clock) -> None:
        self._limits = limits
        self._buckets = RateBuckets(TOKEN, clock)

    @property
    def limited(self) -> bool:
        """Whether any token is limited now."""
        return self._limits().limited

    def admit(self, authorization: str | bytes | None) -> None:
        """Run `check`, and count a refusal as one of the pipeline."""
        try:
            self.check(authorization)
        except (Overloaded, InvalidRequest) as error:
            count_refused_request(error, 0)
            raise

    def check(self, authorization: str | bytes | None) -> None:
        """Count a request, before it is read. The token is valid, or the process has none.

        Raises Overloaded (token_requests_limit, token_samples_limit) with the time until the next request may come;
        InvalidRequest with the same reasons for a rate of 0, which no wait mends.
        """
        if authorization is None:
            return
        limits = self._limits()
        holder = _holder(authorization, limits)
        if holder is None:
            return
        taken = self._buckets.take([holder], _NO_SAMPLES, limits)
        if taken.over[0]:
            raise _over_rate(taken, limits, holder)

    def charge(self, authorization: str | bytes | None, samples: int) -> None:
        """Count the samples of a request that was admitted."""
        if authorization is None:
            return
        limits = self._limits()
        holder = _holder(authorization, limits)
        if holder is not None:
            self._buckets.charge(holder, samples, limits)


def holder_of(digest: bytes) -> int:
    """The holder of a token, by its SHA-256; 64 bit."""
    return int.from_bytes(digest[:8], "little")


def _holder(authorization: str | bytes | None, limits: RateLimits) -> int | None:
    """None when nothing is limited for the caller."""
    token = bearer_token(authorization) if limits.limited else None
    if token is None:
        return None
    holder = holder_of(token_digest(token))
    return holder if limits.default.limited or holder in limits.own else None


def _over_rate(taken: Taken, limits: RateLimits, holder: int) -> Overloaded | InvalidRequest:
    rates = limits.rates([holder])[0]
    unit = unit_over(taken.wait_s[0], rates)
    wait_s, rate = float(taken.wait_s[0, unit]), float(rates[unit])
    own = limits.own.get(holder, Rate())
    is_own = (own.requests_per_s, own.samples_per_s)[unit] is not None
    name = f"token {own.name!r}" if own.name else "this bearer token"
    place = f"{_WHAT[unit]}_per_s of its [[token]]" if is_own else f"token_{_WHAT[unit]}_per_s"
    if not rate:
        return InvalidRequest(
            f"{name} may send no {_WHAT[unit]} ({place} is 0): raise it in limits_file, or stop the sender",
            reason=REASONS[unit],
            limit="0",
        )
    return Overloaded(
        f"{name} sends more than {rate:g} {_WHAT[unit]} a second ({place}):"
        f" send again in {wait_s:.2g} s, or raise it in limits_file",
        reason=REASONS[unit],
        retry_after_s=wait_s,
        limit=f"{rate:g}",
    )
