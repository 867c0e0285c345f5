"""The topic guard, with an admin client that answers on request of the test."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from tsdb.log.interface import METRICS
from tsdb.log.kafka.clients import ADMIN, RENEW_AFTER_S, Renewed
from tsdb.log.kafka.topic_guard import CHECK_EVERY_S, FRESH_S, GONE_AFTER_S, LOST_AFTER_S, TopicGuard
from tsdb.model.clock import ManualClock
from tsdb.model.errors import InvalidRequest, Unavailable, WrongTopic


@dataclass
class Described:
    """The fields of a topic description that the guard reads."""

    topic_id: str
    partitions: tuple[int, ...] = (0, 1)


class FakeAdmin:
    """Answers with `answer` at once, or leaves requests unanswered while it is None."""

    def __init__(self, answer: Described | KafkaError | None) -> None:
        self.answer = answer
        self.open: list[Future[Any]] = []
        self.requests = 0

    def describe_topics(self, topics: TopicCollection, *, request_timeout: float) -> dict[str, Future[Any]]:
        self.requests += 1
        future: Future[Any] = Future()
        self.open.append(future)
        if self.answer is not None:
            self.settle()
        return {f"p.{METRICS}": future}

    def settle(self) -> None:
        """Answer all open requests."""
        for future in self.open:
            if isinstance(self.answer, KafkaError):
                future.set_exception(KafkaException(self.answer))
            else:
                future.set_result(self.answer)
        self.open.clear()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def admin() -> FakeAdmin:
    return FakeAdmin(Described("one"))


def guarding(admin: FakeAdmin, clock: ManualClock, *more: FakeAdmin) -> TopicGuard:
    """A guard whose first admin client is `admin`; the others replace it in order."""
    clients = iter((admin, *more))
    renewed = Renewed(ADMIN, lambda: cast(AdminClient, next(clients)), clock)
    return TopicGuard(renewed, lambda topic: f"p.{topic}", clock, 1.0)


@pytest.fixture
def guard(admin: FakeAdmin, clock: ManualClock) -> TopicGuard:
    guard = guarding(admin, clock)
    assert guard.topic_id(METRICS) == "one"
    return guard


def advance(clock: ManualClock, seconds: float) -> None:
    clock.advance(round(seconds * 1000))


def test_the_first_answer_stands(guard: TopicGuard, admin: FakeAdmin) -> None:
    assert (guard.topic_id(METRICS), guard.partitions(METRICS)) == ("one", 2)
    guard.check_partition(METRICS, 1)
    with pytest.raises(InvalidRequest):
        guard.check_partition(METRICS, 2)
    assert admin.requests == 1


def test_a_confirmation_lasts_a_moment_and_no_longer(guard: TopicGuard, admin: FakeAdmin, clock: ManualClock) -> None:
    assert guard.confirm(METRICS, 0.0)
    assert admin.requests == 1
    advance(clock, FRESH_S)
    assert guard.confirm(METRICS, 1.0)
    assert admin.requests == 2


def test_without_an_answer_nothing_is_confirmed(guard: TopicGuard, admin: FakeAdmin, clock: ManualClock) -> None:
    admin.answer = None
    advance(clock, FRESH_S)
    assert not guard.confirm(METRICS, 0.0)
    advance(clock, CHECK_EVERY_S)
    guard.check(METRICS)
    assert admin.requests == 2, "one question at a time"


def test_an_answer_confirms_what_was_before_its_question(
    guard: TopicGuard, admin: FakeAdmin, clock: ManualClock
) -> None:
    admin.answer = None
    advance(clock, CHECK_EVERY_S + 0.001)
    guard.check(METRICS)
    advance(clock, FRESH_S)
    admin.answer = Described("one")
    admin.settle()
    before = admin.requests
    assert guard.confirm(METRICS, 1.0)
    assert admin.requests == before + 1


def test_another_id_is_final(guard: TopicGuard, admin: FakeAdmin, clock: ManualClock) -> None:
    admin.answer = Described("two")
    advance(clock, FRESH_S)
    for _ in range(2):
        with pytest.raises(WrongTopic) as wrong:
            guard.confirm(METRICS, 1.0)
        assert wrong.value.reason == "topic_recreated"
        assert (wrong.value.metadata["want"], wrong.value.metadata["got"]) == ("one", "two")
    admin.answer = Described("one")
    with pytest.raises(WrongTopic):
        guard.check(METRICS)


def test_an_unknown_topic_is_deleted_only_after_a_while(
    guard: TopicGuard, admin: FakeAdmin, clock: ManualClock
) -> None:
    admin.answer = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    advance(clock, FRESH_S)
    assert not guard.confirm(METRICS, 0.0)
    advance(clock, GONE_AFTER_S + 0.001)
    with pytest.raises(WrongTopic) as gone:
        guard.confirm(METRICS, 0.0)
    assert gone.value.reason == "topic_deleted"


def test_a_topic_that_a_new_broker_did_not_know_yet_is_well(
    guard: TopicGuard, admin: FakeAdmin, clock: ManualClock
) -> None:
    admin.answer = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    advance(clock, FRESH_S)
    assert not guard.confirm(METRICS, 0.0)
    admin.answer = Described("one")
    assert guard.confirm(METRICS, 1.0)
    admin.answer = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    advance(clock, GONE_AFTER_S)
    assert not guard.confirm(METRICS, 0.0)
    guard.check(METRICS)


def test_unavailability_counts_from_the_first_question_unanswered(
    guard: TopicGuard, admin: FakeAdmin, clock: ManualClock
) -> None:
    assert guard.unavailable_since_monotonic is None
    admin.answer = KafkaError(KafkaError._TIMED_OUT)
    advance(clock, CHECK_EVERY_S + 0.001)
    since = clock.monotonic()
    guard.check(METRICS)
    advance(clock, 5)
    guard.check(METRICS)
    assert guard.unavailable_since_monotonic == since
    admin.answer = Described("one")
    assert guard.confirm(METRICS, 1.0)
    assert guard.unavailable_since_monotonic is None


def test_a_broker_away_at_the_first_request_is_unavailable_and_tried_again() -> None:
    admin = FakeAdmin(KafkaError(KafkaError._TRANSPORT))
    guard = guarding(admin, ManualClock())
    with pytest.raises(Unavailable):
        guard.topic_id(METRICS)
    admin.answer = Described("one")
    assert guard.topic_id(METRICS) == "one"


def test_an_answer_that_never_comes_is_a_failure_and_another_client_is_asked(clock: ManualClock) -> None:
    deaf, second = FakeAdmin(Described("one")), FakeAdmin(Described("one"))
    guard = guarding(deaf, clock, second)
    guard.topic_id(METRICS)
    deaf.answer = None
    advance(clock, CHECK_EVERY_S + 0.001)
    asked_at = clock.monotonic()
    guard.check(METRICS)
    advance(clock, LOST_AFTER_S + 0.001)
    second.answer = None
    guard.check(METRICS)
    assert guard.unavailable_since_monotonic == asked_at
    second.answer = Described("one")
    second.settle()
    assert guard.confirm(METRICS, 0.0)
    assert guard.unavailable_since_monotonic is None
    assert (deaf.requests, second.requests) == (2, 1)


def test_a_late_answer_of_a_request_given_up_changes_nothing(admin: FakeAdmin, clock: ManualClock) -> None:
    guard = guarding(admin, clock, FakeAdmin(Described("one")))
    guard.topic_id(METRICS)
    admin.answer = None
    advance(clock, CHECK_EVERY_S + 0.001)
    guard.check(METRICS)
    late, admin.open = admin.open, []
    advance(clock, LOST_AFTER_S + 0.001)
    guard.check(METRICS)
    for future in late:
        future.set_result(Described("two"))
    assert guard.confirm(METRICS, 1.0)


def test_a_client_without_an_answer_for_long_is_replaced(clock: ManualClock) -> None:
    failing, second = FakeAdmin(Described("one")), FakeAdmin(Described("one"))
    guard = guarding(failing, clock, second)
    guard.topic_id(METRICS)
    failing.answer = KafkaError(KafkaError._TIMED_OUT)
    for _ in range(2):
        advance(clock, RENEW_AFTER_S / 2)
        assert not guard.confirm(METRICS, 0.0)
    advance(clock, RENEW_AFTER_S / 2 + 0.001)
    assert guard.confirm(METRICS, 0.0)
    assert second.requests == 1


def test_a_request_that_the_library_refuses_is_a_failure(
    guard: TopicGuard, admin: FakeAdmin, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))

    monkeypatch.setattr(admin, "describe_topics", refuse)
    advance(clock, CHECK_EVERY_S + 0.001)
    guard.check(METRICS)
    assert guard.unavailable_since_monotonic is not None
