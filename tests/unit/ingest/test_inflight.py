"""Bytes in flight: bounded, given back once by the last holder, and a drain waits for all of them."""

from __future__ import annotations

import threading

import pytest

from ingest.inflight import inflight_bytes, reserve
from support.counters import sample
from tsdb.model.errors import Overloaded, Unavailable
from tsdb.ops.byte_budget import ByteBudget


def test_the_limit_itself_is_allowed_and_one_byte_more_is_not() -> None:
    inflight, before = ByteBudget(10, gauge=inflight_bytes), sample("tsdb_ingest_inflight_bytes")
    reserve(inflight, 6)
    last = reserve(inflight, 4)
    with pytest.raises(Overloaded, match="10 bytes wait for the log and this request has 1; limit is 10") as caught:
        reserve(inflight, 1)
    assert caught.value.retry_after_s
    last.release()
    assert inflight.bytes == 6
    assert sample("tsdb_ingest_inflight_bytes") == before + 6
    reserve(inflight, 4)


def test_bytes_stay_reserved_until_the_last_holder_lets_go() -> None:
    inflight = ByteBudget(10, gauge=inflight_bytes)
    with reserve(inflight, 10) as reservation:
        reservation.hold()
        reservation.hold()
    assert inflight.bytes == 10
    reservation.release()
    assert inflight.bytes == 10
    reservation.release()
    assert inflight.bytes == 0
    with pytest.raises(AssertionError, match="given back"):
        reservation.hold()


def test_an_exception_gives_the_bytes_back() -> None:
    inflight = ByteBudget(10, gauge=inflight_bytes)
    with pytest.raises(KeyError), reserve(inflight, 10):
        raise KeyError
    assert inflight.bytes == 0


def test_after_close_nothing_is_reserved_and_the_wait_ends_with_the_last() -> None:
    inflight = ByteBudget(10, gauge=inflight_bytes)
    reservation = reserve(inflight, 0)
    inflight.close()
    with pytest.raises(Unavailable, match="draining") as caught:
        reserve(inflight, 0)
    assert (caught.value.reason, caught.value.retry_after_s) == ("draining", 1.0)
    assert not inflight.wait_idle(0.01)
    letting_go = threading.Thread(target=reservation.release)
    letting_go.start()
    assert inflight.wait_idle(10)
    letting_go.join()
