"""Two rulers of a cluster: each group is evaluated by one of them, late samples are repaired, and one goes on when the
other is killed. Every recorded sample is the value of its expression over all samples, and none is missing."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from support.rules.ruler_roles import (
    NAMES,
    WITHIN_S,
    check_results,
    is_settled,
    owned,
    rule_file,
    samples,
    through_ms,
    written,
)
from support.servers.deployments import on_kafka
from support.servers.logs import wait_until
from support.servers.processes import Role

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("seed", range(3))
def test_two_rulers_share_groups_and_repair_over_kills(tmp_path: Path, kafka: Any, seed: int) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(rule_file())
    with ExitStack() as stack:
        made = stack.enter_context(on_kafka(tmp_path, kafka.bootstrap))
        settings = (*made.log, "--stores", made.store.grpc, "--rules", str(rules), "--rules-grace-s", "2")
        rulers = [stack.enter_context(Role(tmp_path, "ruler", *settings)) for _ in range(2)]
        wait_until(lambda: _are_shared(rulers), WITHIN_S)
        with written(made, seed):
            for _ in range(2):
                _record_more(rulers[0])
                rulers[1].kill()
                wait_until(lambda: owned(rulers[:1]) == [NAMES], WITHIN_S)
                rulers[1].start()
                wait_until(lambda: _are_shared(rulers), WITHIN_S)
                made.store.kill()
                made.store.start()
            time_ms = time.time_ns() // 1_000_000
            wait_until(lambda: all(through_ms(rulers[0], name) > time_ms for name in NAMES), WITHIN_S)
        wait_until(lambda: all(map(is_settled, rulers)), WITHIN_S)
        assert sum(ruler.metrics()["tsdb_ruler_repaired_samples_total"] for ruler in rulers) > 0
        check_results(rulers[0].http)


def _record_more(ruler: Role) -> None:
    before = len(samples(ruler.http, "sum_3"))
    wait_until(lambda: len(samples(ruler.http, "sum_3")) > before + 20, WITHIN_S)


def _are_shared(rulers: list[Role]) -> bool:
    """Whether each group has one ruler, and each ruler a group."""
    found = owned(rulers)
    return all(found) and sorted(NAMES) == sorted(name for names in found for name in names)
