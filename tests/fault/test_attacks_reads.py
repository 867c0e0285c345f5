"""Attacks the promise that one client never harms another: answers that nobody reads, a regular expression that takes
minutes, waits for what never comes. Others write, read and probe as before, memory keeps to docs/bounds.md, and SIGTERM
ends the process in time. The same at full size: tests/soak/test_attacks_reads.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.drills.read_attacks import ATTACKS, MIB, Attacked, check_bystander, check_term, raw_reads
from support.servers.deployments import embedded

SERIES, SAMPLES, LONG_SERIES = 1_500, 200, 1_000
ANSWERS_BYTES_MAX = 24 * MIB  # An answer has 5 MiB, so one connection can have two.
DRAIN_S = 15.0  # The default is 25 s. On a busy machine the threads of the attacks take seconds to be told.
LIMITS = ("--answers-bytes-max", str(ANSWERS_BYTES_MAX), "--drain-s", str(DRAIN_S))


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    scratch: Path = tmp_path_factory.mktemp("attacks-reads")
    with embedded(scratch, *LIMITS) as running:
        attacked = Attacked(running, ANSWERS_BYTES_MAX, DRAIN_S)
        attacked.write(series=SERIES, samples=SAMPLES, long_series=LONG_SERIES)
        yield attacked


@pytest.mark.parametrize("attack", ATTACKS)
def test_another_client_feels_nothing_of(attacked: Attacked, attack: str) -> None:
    check_bystander(attacked, attack, calls=40, under_way=True)


def test_many_large_reads_at_once_are_whole_or_refused_by_name_in_bounded_memory(attacked: Attacked) -> None:
    raw_reads(attacked, reads=32, samples=SERIES * SAMPLES)


def test_a_signal_in_the_middle_of_all_attacks_ends_the_process_in_time(attacked: Attacked) -> None:
    check_term(attacked, *ATTACKS)
