"""Coverage names the parts that do not answer, and is complete without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tsdb.model.errors import Overloaded, Unavailable
from tsdb.query.coverage import coverage
from tsdb.query.sources import Sources
from tsdb.v1 import common_pb2


@dataclass
class Store:
    known: dict[int, common_pb2.PartitionState]
    name: str = "h:1"
    is_suspect: bool = False
    apart: bool = False

    def states(self) -> dict[int, common_pb2.PartitionState]:
        return self.known


@dataclass
class Silent:
    """Stores of which some do not answer."""

    in_process = None
    stores: list[Store]
    silent: list[tuple[str, str]] = field(default_factory=list)

    def all(self) -> list[Store]:
        return self.stores

    def refresh(self, timeout_s: float) -> None:
        pass

    def away(self) -> Sequence[tuple[str, str]]:
        return self.silent


def state(partition: int, reason: str = "") -> common_pb2.PartitionState:
    return common_pb2.PartitionState(partition=partition, topic_id="t", ready=not reason, reason=reason)


def sources_of(stores: Silent, history: Any = None) -> Sources:
    return Sources(
        cast(Any, stores),
        "t",
        (0, 1),
        history,
        log_address="kafka://user:secret@k:9092",
        history_address="cassandra://c/tsdb",
    )


CALLER = cast(Any, SimpleNamespace(time_remaining=lambda: None))


def test_a_store_that_does_not_answer_is_named_and_the_others_are_shown() -> None:
    stores = Silent([Store({0: state(0)})], [("10.0.0.3:7420", "nothing listens at 10.0.0.3:7420")])
    answer = coverage(sources_of(stores), CALLER)
    assert [one.partition for one in answer.partitions] == [0]
    (away,) = answer.away
    assert (away.part, away.address, away.error) == ("store", "10.0.0.3:7420", "nothing listens at 10.0.0.3:7420")
    assert "setting `stores`" in away.next_step


@pytest.mark.parametrize("reason", ["high_watermark_old", "high_watermark_unknown"])
def test_a_log_that_does_not_answer_the_stores_is_named_without_its_password(reason: str) -> None:
    stores = Silent([Store({0: state(0, reason), 1: state(1, reason)})])
    (away,) = coverage(sources_of(stores), CALLER).away
    assert (away.part, away.address) == ("log", "kafka://user:***@k:9092")
    assert "partition 0, 1" in away.error
    assert "Check that Kafka answers" in away.next_step


@pytest.mark.parametrize("error", [Unavailable("no host answers"), Overloaded("no host answers")])
def test_a_history_that_does_not_answer_is_named_and_memory_is_shown(error: Exception) -> None:
    def loaded(topic_id: str) -> Any:
        raise error

    history = SimpleNamespace(store=SimpleNamespace(loaded=loaded))
    answer = coverage(sources_of(Silent([Store({0: state(0), 1: state(1)})]), history), CALLER)
    assert len(answer.partitions) == 2
    (away,) = answer.away
    assert (away.part, away.address, away.error) == ("history", "cassandra://c/tsdb", "no host answers")


def test_nothing_is_away_while_all_answer() -> None:
    stores = Silent([Store({0: state(0, "replaying"), 1: state(1)})])
    assert not coverage(sources_of(stores), CALLER).away
