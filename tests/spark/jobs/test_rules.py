"""rules: a backfill on Spark writes what the code of a ruler gives step by step, bit for bit, and nothing twice."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

import spark_backfill
from spark_backfill import Installation, RulesResult
from spark_backfill.jobs.rules.job import RulesOptions, evaluate_rules
from spark_backfill.jobs.rules.work import RuleTexts
from support.rules.step_oracle import Values, evaluated, groups_of
from support.servers.logs import wait_until
from support.spark.chunk_progress import write_progress
from support.spark.import_faults import GRAVES, DyingPlaces
from support.spark.imports import ImportGround
from tsdb.history.interface import Loaded
from tsdb.log.interface import METRICS
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import parse_labels
from tsdb.query.history.index import Choice, HistoryIndex
from tsdb.rules.memory import MemoryStorage
from tsdb.rules.unit_tests.notation import labels_of

HOUR_MS = 3_600_000
FIRST_MS = 1_577_836_800_000  # 2020-01-01T00:00Z, the start of a window.
START_MS, END_MS = FIRST_MS + HOUR_MS + 20_000, FIRST_MS + 14 * HOUR_MS
STEP_MS = 60_000
FIRST_STEP_MS = FIRST_MS + HOUR_MS + STEP_MS
RULES = """
- name: base
  interval: 2m
  rules:
  - {record: sum_x, expr: sum by (job) (x)}
  - {record: rate, expr: "rate(x[5m])"}
  - {record: high, expr: x > 6, labels: {of: x}}
- {name: reader, interval: 5m, query_offset: 1m, rules: [{record: mean, expr: "avg_over_time(sum_x[30m])"}]}
- {name: apart, interval: 4m, rules: [{record: most, expr: "max(x)"}, {record: odd, expr: "x % 2 == 1"}]}
- name: alerts
  interval: 3m
  rules: [{alert: High, expr: x > 6, for: 6m, keep_firing_for: 9m, labels: {severity: page}}]
"""


@pytest.fixture
def installation(embedded: ImportGround) -> Installation:
    """An installation whose chunk stage has emitted everything."""
    write_progress(embedded.log)
    topic_id = embedded.log.topic_id(METRICS)
    wait_until(lambda: len(embedded.history.loaded(topic_id)) == embedded.log.partitions(METRICS))
    return spark_backfill.connect(log=embedded.places.log, history=embedded.places.history)


def imported(spark: SparkSession, on: Installation, folder: Path) -> MemoryStorage:
    """Samples of three series in history, every two minutes with gaps."""
    rng, storage, lines = random.Random(1), MemoryStorage(), []
    for job in "abc":
        labels = {"__name__": "x", "job": job, "instance": job}
        for at_ms in range(FIRST_MS, END_MS + HOUR_MS, 120_000):
            if rng.random() < 0.8 and at_ms % (5 * HOUR_MS) > 20 * 60_000:
                value = float(rng.randint(0, 9))
                storage.add(labels_of(labels), [(at_ms, value)])
                lines.append(json.dumps({"labels": labels, "ts_ms": at_ms, "value": value}))
    file = folder / "x.jsonl"
    file.write_text("\n".join(lines))
    assert spark_backfill.import_files(spark, on, file, format="jsonl", job_id="raw").ok
    return storage


def run(spark: SparkSession, on: Installation, folder: Path, text: str = RULES, **given: object) -> RulesResult:
    file = folder / "rules.yaml"
    file.write_text(f"groups:\n{text}")
    return spark_backfill.evaluate_rules(spark, on, file, START_MS, END_MS, **{"tasks": 4, **given})  # type: ignore[arg-type]


def stored(ground: ImportGround) -> Values:
    """Bits of all samples as a reader of history finds them."""
    needs = dict.fromkeys(range(ground.shared.partitions), 0)
    loaded = {partition: Loaded("topic", partition, 100, 0) for partition in needs}
    found = HistoryIndex(ground.history).find(Choice(()), FIRST_MS, END_MS + HOUR_MS, loaded, needs)
    labels = {
        number: parse_labels(canonical)
        for part in found.values()
        for number, canonical in zip(part.series_ids.tolist(), part.labels, strict=True)
    }
    values: Values = {}
    for (number, _), samples in ground.held().items():
        for ts_ms, bits in samples:
            values[labels[number], ts_ms] = int(np.uint64(bits).astype(np.int64))
    return values


def test_rules_over_history_are_those_of_a_ruler(
    embedded: ImportGround, installation: Installation, spark: SparkSession, tmp_path: Path
) -> None:
    storage = imported(spark, installation, tmp_path)
    expected = evaluated(groups_of(RULES), storage, FIRST_STEP_MS, END_MS, STEP_MS)
    planned = run(spark, installation, tmp_path, dry_run=True)
    assert stored(embedded).keys() == {key for key in expected if dict(key[0])["__name__"] == "x"}
    done = run(spark, installation, tmp_path, job_id="rules", tasks=8)
    assert stored(embedded) == expected
    assert (done.ok, done.loaded, done.samples) == (True, True, planned.samples)
    assert done.samples == done.results == sum(dict(labels)["__name__"] != "x" for labels, _ in expected)
    rows = embedded.rows()
    again = run(spark, installation, tmp_path, job_id="rules", tasks=3)
    assert (again.samples, embedded.rows()) == (done.samples, rows), "a rerun writes the same keys and bytes"
    assert run(spark, installation, tmp_path).samples == 0, "what is stored is not written again"


def test_a_corrected_rule_replaces_what_was_recorded(
    embedded: ImportGround, installation: Installation, spark: SparkSession, tmp_path: Path
) -> None:
    storage = imported(spark, installation, tmp_path)
    wrong = RULES.replace("x > 6, labels", "x > 7, labels").replace("sum by (job) (x)", "sum(x)")
    assert run(spark, installation, tmp_path, wrong).ok
    done = run(spark, installation, tmp_path)
    assert 0 < done.samples < done.results
    found = stored(embedded)
    expected = evaluated(groups_of(RULES), storage, FIRST_STEP_MS, END_MS, STEP_MS)
    stale = {bits for key, bits in found.items() if key not in expected}
    assert {key: bits for key, bits in found.items() if key in expected} == expected
    assert len(stale) == 1
    assert run(spark, installation, tmp_path).samples == 0


def test_tasks_that_die_write_the_same(
    embedded: ImportGround, installation: Installation, spark: SparkSession, tmp_path: Path
) -> None:
    storage = imported(spark, installation, tmp_path)
    graves = tmp_path / GRAVES
    texts = RuleTexts((("f", f"groups:\n{RULES}".encode()),))
    places = DyingPlaces.of(installation.places, graves, 2)
    done = evaluate_rules(
        spark, texts, places, embedded.shared, RulesOptions(START_MS, END_MS, "dying", wait_s=120.0, tasks=6)
    )
    assert done.ok
    assert any(graves.iterdir()), "no worker died among its appends"
    assert stored(embedded) == evaluated(groups_of(RULES), storage, FIRST_STEP_MS, END_MS, STEP_MS)


def test_a_rule_that_fails_is_named_and_the_others_are_written(
    embedded: ImportGround, installation: Installation, spark: SparkSession, tmp_path: Path
) -> None:
    imported(spark, installation, tmp_path)
    text = '- {name: g, rules: [{record: bad, expr: "x * on () x"}, {record: good, expr: sum(x)}]}'
    done = run(spark, installation, tmp_path, text)
    (row,) = done.rows
    assert (done.ok, row.rule, row.group, row.steps) == (False, "bad", "g", done.failures)
    assert 0 < row.steps < done.evaluations // 2
    assert "many-to-many" in row.error
    names = [dict(labels)["__name__"] for labels, _ in stored(embedded)]
    assert 0 < names.count("bad") < names.count("good")


@pytest.mark.parametrize(
    ("start", "end", "text", "reason"),
    [
        (END_MS, START_MS, RULES, "bad_range"),
        (START_MS, "2999-01-01", RULES, "too_recent"),
        (START_MS, END_MS, "- {name: g, rules: [{record: a, expr: sum(}]}", "bad_document"),
        (
            START_MS,
            END_MS,
            "- {name: g, rules: [{record: a, expr: b}]}\n- {name: h, rules: [{record: b, expr: a}]}",
            "rule_circle",
        ),
    ],
)
def test_bad_input_is_refused_before_a_task(
    installation: Installation, spark: SparkSession, tmp_path: Path, start: int, end: object, text: str, reason: str
) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(f"groups:\n{text}")
    with pytest.raises(InvalidRequest) as refused:
        spark_backfill.evaluate_rules(spark, installation, file, start, end)  # type: ignore[arg-type]
    assert refused.value.reason == reason
