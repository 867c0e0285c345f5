"""The role `ruler` of a cluster evaluates rules over a store, and again for late samples."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from support.rules.ruler_roles import NAMES, WITHIN_S, check_results, is_settled, owned, rule_file, through_ms, written
from support.servers.deployments import on_kafka
from support.servers.logs import wait_until
from support.servers.processes import Role

pytestmark = pytest.mark.timeout(900)


def test_a_ruler_evaluates_over_a_store_and_repairs(tmp_path: Path, kafka: Any) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(rule_file())
    with on_kafka(tmp_path, kafka.bootstrap) as made:
        settings = (*made.log, "--stores", made.store.grpc, "--rules", str(rules), "--rules-grace-s", "2")
        with Role(tmp_path, "ruler", *settings) as ruler:
            wait_until(lambda: owned([ruler]) == [NAMES], WITHIN_S)
            with written(made, 1):
                wait_until(lambda: ruler.metrics()["tsdb_ruler_repaired_samples_total"] > 20, WITHIN_S)
                time_ms = time.time_ns() // 1_000_000
                wait_until(lambda: all(through_ms(ruler, name) > time_ms for name in NAMES), WITHIN_S)
            wait_until(lambda: is_settled(ruler), WITHIN_S)
            check_results(ruler.http)
            with Role(tmp_path, "querier", *made.log, "--stores", made.store.grpc, "--rulers", ruler.http) as querier:
                assert groups_of(querier.http) == (NAMES, [])
                gone = f"{ruler.http},localhost:1"
                querier_of_two = Role(tmp_path, "querier", *made.log, "--stores", made.store.grpc, "--rulers", gone)
                with querier_of_two as other:
                    names, warnings = groups_of(other.http)
                    assert names == NAMES
                    assert [text.partition(" ")[0] for text in warnings] == ["ruler"]
            with urllib.request.urlopen(f"http://{ruler.http}/ui/rules", timeout=30) as page:
                text = page.read().decode()
            assert [name for name in (*NAMES, str(rules)) if name not in text] == []
            assert ruler.terminate_within(25.0) == 0


def groups_of(http: str) -> tuple[set[str], list[str]]:
    """Names of the groups that a process shows, and the warnings of its answer."""
    with urllib.request.urlopen(f"http://{http}/api/v1/rules", timeout=30) as answer:
        found = json.load(answer)
    return {one["name"] for one in found["data"]["groups"]}, found.get("warnings", [])
