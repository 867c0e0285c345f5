"""Attacks all promises at once, as tests/property/test_simulation.py does, by thousands of seeds and every profile."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from support.simulation.driver import Failure, failure_of, shrunk
from support.simulation.profile import PROFILES

pytestmark = [pytest.mark.soak, pytest.mark.timeout(7200)]

FIRST_SEED, SEEDS, PROCESSES, BLOCK = 200, 5_000, 2, 50  # Every test run has the seeds before FIRST_SEED.


def test_5000_whole_systems_keep_every_promise() -> None:
    blocks = [range(first, first + BLOCK) for first in range(FIRST_SEED, FIRST_SEED + SEEDS, BLOCK)]
    with ProcessPoolExecutor(PROCESSES, multiprocessing.get_context("spawn")) as processes:
        failures = [failure for found in processes.map(failures_of, blocks) for failure in found]
    assert not failures, "\n\n".join(map(str, failures[:5]))


def failures_of(seeds: range) -> list[Failure]:
    """Failures of these seeds, distributed over the profiles. The first failure is reduced to few steps."""
    found: list[Failure] = []
    for seed in seeds:
        profile = PROFILES[seed % len(PROFILES)]
        failure = failure_of(seed, profile)
        if failure is not None:
            found.append(failure if found else shrunk(failure, profile))
    return found
