"""Long attacks on the guarantees of the parallel consumer: no loss, order by key, no repeat of committed records."""

from __future__ import annotations

from pathlib import Path

import pytest

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

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_800)]


@pytest.mark.parametrize(("seed", "protocol"), [(1, "classic"), (2, "classic"), (3, "consumer")])
def test_members_join_and_leave_every_5_s_for_5_minutes(kafka: SharedBroker, seed: int, protocol: str) -> None:
    print(members_come_and_go(kafka.bootstrap, 300.0, 5.0, seed, protocol))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_killed_10_times(kafka: SharedBroker, tmp_path: Path, protocol: str) -> None:
    print(members_killed(kafka.bootstrap, tmp_path, 10, protocol))


def test_a_slow_sink_for_10_minutes(kafka: SharedBroker) -> None:
    print(slow_sink(kafka.bootstrap, 600.0, 30.0))


@pytest.mark.parametrize("poison", [0, 5_000, 9_999])
def test_one_poison_in_10_000(kafka: SharedBroker, poison: int) -> None:
    one_poison(kafka.bootstrap, 10_000, poison)


def test_sigterm_under_load_20_times(kafka: SharedBroker, tmp_path: Path) -> None:
    print(sigterm_under_load(kafka.bootstrap, tmp_path, rounds=20))


def test_registries_killed_and_ended_20_times(kafka: SharedBroker, tmp_path: Path) -> None:
    print(registry_kills(kafka.bootstrap, tmp_path, rounds=20))


def test_transactions_killed_30_times(kafka: SharedBroker) -> None:
    print(transactions_killed(kafka.bootstrap, kills=30, seed=2))
