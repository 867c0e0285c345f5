"""Attacks on reads at full size: 64 unread answers of some 80 MB, 32 reads of 10,000 x 480 samples at once, a regular
expression over 20,000 long values, 64 waits. The short twin: tests/fault/test_attacks_reads.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.drills.read_attacks import ATTACKS, Attacked, check_bystander, check_term, raw_reads
from support.servers.deployments import Deployment, embedded, on_kafka
from support.servers.processes import Role
from support.shared_servers import SharedBroker
from tsdb.config import StoreSettings

SERIES, SAMPLES, LONG_SERIES = 10_000, 480, 20_000
DRAIN_S = 25.0

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """With the limits that a process has by default."""
    scratch: Path = tmp_path_factory.mktemp("attacks-reads")
    with embedded(scratch) as running:
        attacked = Attacked(running, StoreSettings.model_fields["answers_bytes_max"].default, DRAIN_S)
        attacked.write(series=SERIES, samples=SAMPLES, long_series=LONG_SERIES)
        yield attacked


@pytest.fixture(scope="module")
def attacked_querier(kafka: SharedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    """A querier over one store; the attacks are on the querier."""
    scratch: Path = tmp_path_factory.mktemp("attacks-querier")
    with (
        on_kafka(scratch, kafka.bootstrap) as running,
        Role(scratch, "querier", *running.log, "--stores", running.store.grpc) as querier,
    ):
        over_querier = Deployment(running.gateway, querier, running.log)
        attacked = Attacked(over_querier, StoreSettings.model_fields["answers_bytes_max"].default, DRAIN_S)
        attacked.write(series=SERIES, samples=SAMPLES, long_series=LONG_SERIES)
        yield attacked


@pytest.mark.parametrize("attack", ATTACKS)
def test_another_client_feels_nothing_at_a_querier_of(attacked_querier: Attacked, attack: str) -> None:
    check_bystander(attacked_querier, attack, calls=300)


def test_a_signal_in_the_middle_of_all_attacks_ends_a_querier_in_time(attacked_querier: Attacked) -> None:
    check_term(attacked_querier, *ATTACKS)
    for role in attacked_querier.roles:
        role.start()


@pytest.mark.parametrize("attack", ATTACKS)
def test_another_client_feels_nothing_of(attacked: Attacked, attack: str) -> None:
    check_bystander(attacked, attack, calls=300)


def test_many_large_reads_at_once_are_whole_or_refused_by_name_in_bounded_memory(attacked: Attacked) -> None:
    raw_reads(attacked, reads=32, samples=SERIES * SAMPLES)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_signal_in_the_middle_of_an_attack_ends_the_process_in_time(attacked: Attacked, attack: str) -> None:
    check_term(attacked, attack)
    for role in attacked.roles:
        role.start()
