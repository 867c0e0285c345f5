from __future__ import annotations

import hashlib

import pytest

from ingest.limits import Rate, RateLimits
from ingest.quota.token_quota import TokenQuota, holder_of
from support.counters import sample
from tsdb.model.clock import ManualClock
from tsdb.model.errors import InvalidRequest, Overloaded


def quota(limits: RateLimits) -> TokenQuota:
    return TokenQuota(lambda: limits, ManualClock())


def own(token: str, rate: Rate) -> RateLimits:
    return RateLimits(own={holder_of(hashlib.sha256(token.encode()).digest()): rate}, burst_s=1)


def test_a_token_over_its_requests_is_refused_with_a_hint() -> None:
    at = quota(RateLimits(Rate(requests_per_s=2), burst_s=1))
    at.admit("Bearer a")
    at.admit(b"bearer a ")
    with pytest.raises(Overloaded, match="this bearer token sends more than 2 requests a second") as caught:
        at.admit("Bearer a")
    assert caught.value.reason == "token_requests_limit"
    assert caught.value.retry_after_s == pytest.approx(0.5)
    at.admit("Bearer b")


def test_samples_count_once_they_are_decoded() -> None:
    at = quota(RateLimits(Rate(samples_per_s=10), burst_s=1))
    at.admit("Bearer a")
    at.charge("Bearer a", 30)
    with pytest.raises(Overloaded, match="token_samples_per_s") as caught:
        at.admit("Bearer a")
    assert caught.value.reason == "token_samples_limit"
    assert caught.value.retry_after_s == pytest.approx(2)


def test_a_token_with_a_limit_of_its_own_is_named_and_never_shown() -> None:
    at = quota(own("s3cret", Rate(requests_per_s=1, name="team-a")))
    at.admit("Bearer s3cret")
    with pytest.raises(Overloaded, match=r"token 'team-a' .*\(requests_per_s of its \[\[token\]\]") as caught:
        at.admit("Bearer s3cret")
    assert "s3cret" not in str(caught.value) + str(caught.value.metadata)
    for _ in range(5):
        at.admit("Bearer other")


@pytest.mark.parametrize("header", [None, "", b"", "Basic abc", "Bearer", "Bearer "])
def test_a_caller_without_a_bearer_token_has_no_limit_of_tokens(header: str | bytes | None) -> None:
    at = quota(RateLimits(Rate(requests_per_s=0)))
    at.admit(header)
    at.charge(header, 1)


def test_a_refusal_is_counted() -> None:
    at = quota(RateLimits(Rate(requests_per_s=1), burst_s=1))
    at.admit("Bearer a")
    before = sample("tsdb_ingest_refused_requests_total", reason="token_requests_limit")
    with pytest.raises(Overloaded):
        at.admit("Bearer a")
    assert sample("tsdb_ingest_refused_requests_total", reason="token_requests_limit") == before + 1


@pytest.mark.parametrize(
    ("rate", "reason"),
    [
        (Rate(requests_per_s=0), "token_requests_limit"),
        (Rate(samples_per_s=0), "token_samples_limit"),
        (Rate(requests_per_s=0.001, samples_per_s=0), "token_samples_limit"),
    ],
)
def test_a_token_that_may_bring_nothing_gets_no_time_to_wait(rate: Rate, reason: str) -> None:
    at = quota(RateLimits(rate))
    before = sample("tsdb_ingest_refused_requests_total", reason=reason)
    with pytest.raises(InvalidRequest, match=r"may send no \w+ \(token_\w+_per_s is 0\)") as caught:
        at.admit("Bearer a")
    assert caught.value.reason == reason
    assert sample("tsdb_ingest_refused_requests_total", reason=reason) == before + 1
