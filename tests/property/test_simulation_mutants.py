"""Attacks the simulation itself: the product with one rule of the design switched off must break a promise in it."""

from __future__ import annotations

import pytest

from support.simulation.driver import Failure, failure_of
from support.simulation.mutants import MUTANTS, Mutant

pytestmark = pytest.mark.slow

SEEDS = 60


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_the_simulation_catches_every_rule_that_is_switched_off(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant.switch_off(monkeypatch)
    found = _first_failure(mutant)
    assert found is not None, f"{SEEDS} schedules keep every promise without the rule: {mutant.rule}"
    assert found.error.startswith("Violation"), f"the mutant does not run: {found.error}"


def _first_failure(mutant: Mutant) -> Failure | None:
    failures = (failure_of(seed, mutant.profile) for seed in (mutant.first, *range(SEEDS)))
    return next((failure for failure in failures if failure is not None), None)
