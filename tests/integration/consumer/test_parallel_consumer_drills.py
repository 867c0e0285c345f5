"""Short twins of the long drills in tests/soak/test_consumer_drills.py."""

from __future__ import annotations

from pathlib import Path

from support.consumer.consumer_drills import (
    members_come_and_go,
    members_killed,
    one_poison,
    registry_kills,
    sigterm_under_load,
    slow_sink,
    transactions_killed,
)
from support.shared_servers import SharedBroker


def test_members_that_come_and_go_lose_nothing_and_keep_the_order(kafka: SharedBroker) -> None:
    members_come_and_go(kafka.bootstrap, 6.0, 1.5, seed=1)


def test_members_of_the_consumer_protocol_that_come_and_go_lose_nothing_and_keep_the_order(kafka: SharedBroker) -> None:
    members_come_and_go(kafka.bootstrap, 6.0, 1.5, seed=1, protocol="consumer")


def test_a_killed_member_of_the_consumer_protocol_loses_nothing(kafka: SharedBroker, tmp_path: Path) -> None:
    members_killed(kafka.bootstrap, tmp_path, kills=1, protocol="consumer")


def test_a_slow_sink_bounds_memory_and_keeps_the_membership(kafka: SharedBroker) -> None:
    slow_sink(kafka.bootstrap, 8.0, 6.0)


def test_one_poison_in_10_000_is_one_dead_letter(kafka: SharedBroker) -> None:
    one_poison(kafka.bootstrap, 10_000, 6_789)


def test_sigterm_under_load_leaves_nothing(kafka: SharedBroker, tmp_path: Path) -> None:
    sigterm_under_load(kafka.bootstrap, tmp_path, rounds=1)


def test_a_killed_registry_leaves_orphans_and_a_clean_shutdown_leaves_no_copy(
    kafka: SharedBroker, tmp_path: Path
) -> None:
    registry_kills(kafka.bootstrap, tmp_path, rounds=2)


def test_outputs_of_killed_transactions_are_seen_once(kafka: SharedBroker) -> None:
    transactions_killed(kafka.bootstrap, kills=2, seed=1)
