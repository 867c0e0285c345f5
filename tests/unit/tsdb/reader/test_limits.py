"""Limits of one read: the lower one of server and caller applies, and a refusal names both figures."""

from __future__ import annotations

import pytest

from tsdb.model.errors import Overloaded
from tsdb.reader.read_call import SelectLimits

SERVER = SelectLimits(series_max=10, samples_max=100, bytes_max=1000)


def test_the_lower_of_both_limits_holds_and_zero_is_none() -> None:
    assert SERVER.lowered(0, 0, 0) == SERVER
    assert SERVER.lowered(11, 50, 10_000) == SelectLimits(10, 50, 1000)


@pytest.mark.parametrize("what", ["series", "samples", "bytes"])
def test_a_limit_is_reached_without_harm_and_refused_above(what: str) -> None:
    limit = getattr(SERVER, f"{what}_max")
    check = getattr(SERVER, f"check_{what}")
    check(limit)
    with pytest.raises(Overloaded) as caught:
        check(limit + 1)
    assert caught.value.reason == f"{what}_limit"
    assert caught.value.metadata == {"limit": str(limit), "asked": str(limit + 1)}
    assert f"{limit + 1} {what}; limit is {limit}" in caught.value.message
    assert caught.value.retry_after_s is None, "the same request would fail again"
