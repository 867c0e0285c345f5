"""Errors: a bounded reason each, metadata as text, a hint only where retrying helps."""

from __future__ import annotations

import re

import pytest

from tsdb.model import errors
from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError, Unavailable, WrongTopic

CLASSES = [
    value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, TsdbError) and not name.startswith("_")
]


@pytest.mark.parametrize("error_class", CLASSES)
def test_every_error_has_its_own_reason(error_class: type[TsdbError]) -> None:
    error = error_class("what happened")
    assert re.fullmatch(r"[a-z_]+", error.reason)
    assert str(error) == error.message == "what happened"
    assert error.metadata == {}
    assert len({other.default_reason for other in CLASSES}) == len(CLASSES)


def test_a_reason_and_metadata_may_be_given() -> None:
    error = InvalidRequest("too old", reason="too_old", partition=3, limit_ms=5)
    assert (error.reason, error.metadata) == ("too_old", {"partition": "3", "limit_ms": "5"})


@pytest.mark.parametrize("error_class", [Unavailable, Overloaded])
def test_retryable_errors_carry_a_hint(error_class: type[Unavailable]) -> None:
    assert error_class("later").retry_after_s is None
    hinted = error_class("later", reason="queue_full", retry_after_s=0.5, partition=1)
    assert (hinted.retry_after_s, hinted.reason, hinted.metadata) == (0.5, "queue_full", {"partition": "1"})


def test_a_wrong_topic_is_the_callers_fault() -> None:
    assert issubclass(WrongTopic, InvalidRequest)
