"""Attacks the promise that chunker and pipeline take over from each other at any time: samples flow through a gateway
meanwhile, and nothing that it accepted is missed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.data.recorded_log import BASE_MS
from support.drills.hand_over import hand_over
from support.servers.chunkers import FastClock
from support.servers.logs import LogFactory
from support.spark.spark import places

SPEED = 8.0  # A window of the demo takes four seconds.
ROUNDS = 3


@pytest.mark.soak  # In each run tests/spark/test_pipeline.py hands over between writes.
def test_engines_hand_over_while_a_gateway_writes_and_miss_nothing(spark: SparkSession, tmp_path: Path) -> None:
    clock = FastClock(BASE_MS, SPEED)
    with LogFactory(f"sqlite:///{tmp_path}/log.db", "") as logs:
        logs.create(2)
        hand_over(spark, logs.open(clock=clock), places(logs), clock, tmp_path / "checkpoint", rounds=ROUNDS)
