"""Three rulers of a cluster: each group is evaluated by one of them, late samples are repaired, and the others go on
when one is killed. Broker and store end meanwhile. Every recorded sample is the value of its expression over all
samples, none is missing, and alerts are those of a fold over these samples."""

from __future__ import annotations

import time
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from stack.kafka import KafkaCluster
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
from support.servers.deployments import PARTITIONS, on_kafka
from support.servers.logs import wait_until
from support.servers.processes import Role
from support.shared_servers import SHORT_SESSIONS
from tsdb.model.partitioner import partition_of

RULERS = 3

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("seed", range(3))
def test_rulers_share_groups_and_repair_over_kills_and_broker_stops(tmp_path: Path, seed: int) -> None:
    rules = _path_of_shared_groups(tmp_path)
    rules.write_text(rule_file())
    with ExitStack() as stack:
        cluster = stack.enter_context(KafkaCluster(folder=tmp_path / "broker", settings=SHORT_SESSIONS))
        made = stack.enter_context(on_kafka(tmp_path, cluster.bootstrap))
        settings = (*made.log, "--stores", made.store.grpc, "--rules", str(rules), "--rules-grace-s", "2")
        rulers = [stack.enter_context(Role(tmp_path, "ruler", *settings)) for _ in range(RULERS)]
        wait_until(lambda: _are_shared(rulers), WITHIN_S)
        with written(made, seed):
            for turn in range(1, RULERS):
                _record_more(rulers[0])
                rulers[turn].kill()
                others = [one for one in rulers if one is not rulers[turn]]
                wait_until(partial(_are_shared, others), WITHIN_S)
                cluster.stop_broker(0)
                wait_until(partial(_waited_since, rulers[0], _waits(rulers[0])), WITHIN_S)
                cluster.start_broker(0)
                rulers[turn].start()
                wait_until(partial(_are_shared, rulers), WITHIN_S)
                made.store.kill()
                made.store.start()
            time_ms = time.time_ns() // 1_000_000
            wait_until(lambda: all(through_ms(rulers[0], name) > time_ms for name in NAMES), WITHIN_S)
        wait_until(lambda: all(map(is_settled, rulers)), WITHIN_S)
        assert sum(ruler.metrics()["tsdb_ruler_repaired_samples_total"] for ruler in rulers) > 0
        check_results(rulers[0].http)


def _path_of_shared_groups(folder: Path) -> Path:
    """A path by which every partition of the log, and so every ruler, has some of the groups."""
    for number in count():
        path = folder / f"rules-{number}.yaml"
        if len({partition_of(f"{path};{name}".encode(), PARTITIONS) for name in NAMES}) == PARTITIONS:
            return path
    raise AssertionError("no path")


def _waited_since(ruler: Role, waits: float) -> bool:
    return _waits(ruler) > waits


def _waits(ruler: Role) -> float:
    """Steps of groups that had to wait, whatever for."""
    return sum(value for name, value in ruler.metrics().items() if name.startswith("tsdb_ruler_waits_total"))


def _record_more(ruler: Role) -> None:
    before = len(samples(ruler.http, "sum_3"))
    wait_until(lambda: len(samples(ruler.http, "sum_3")) > before + 20, WITHIN_S)


def _are_shared(rulers: list[Role]) -> bool:
    """Whether each group has one ruler, and each ruler a group."""
    found = owned(rulers)
    return all(found) and sorted(NAMES) == sorted(name for names in found for name in names)
