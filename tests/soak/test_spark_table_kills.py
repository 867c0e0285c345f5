"""Attacks the promise that each accepted sample is in the Iceberg table once, where a Spark driver keeps it.

Driver, JVM and workers are killed around batches and commits, while samples flow.
"""

from __future__ import annotations

import random
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from spark_backfill.worker_log import close_worker_log
from support.data.late_writes import LateWrites, commits, rows
from support.servers.logs import LogFactory, wait_until
from support.servers.node import Gateway
from support.spark.pipeline_process import DriverProcess
from tsdb.history.iceberg.catalog import TableSettings, create_table, open_catalog
from tsdb.log.meta import write_meta
from tsdb.model.labels import canonical_labels
from tsdb.model.meta import MetaSettings
from tsdb.model.time_set import DEMO

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1_800)]

KILLS = 4
PARTITIONS = 2
WITHIN_S = 240.0


def test_each_sample_is_in_the_table_once_after_kills_of_the_driver(kafka: Any, tmp_path: Path) -> None:
    settings = TableSettings(f"sqlite:///{tmp_path}/tables.db")
    with open_catalog(settings) as catalog:
        assert create_table(catalog, settings.name, 2)
    writes, moments = LateWrites(93), random.Random(94)
    with LogFactory(f"kafka://{kafka.bootstrap}", f"t{uuid.uuid4().hex[:12]}.") as logs, ExitStack() as stack:
        stack.callback(close_worker_log)
        logs.create(PARTITIONS)
        log = logs.open()
        write_meta(log, MetaSettings(partitions=PARTITIONS, time_set=DEMO))
        gateway = Gateway(log, DEMO)

        def begin(number: int) -> DriverProcess:
            arguments = (logs.url, logs.prefix, settings.catalog, str(tmp_path / f"scratch{number}"))
            process = DriverProcess(tmp_path, "support.spark.application_process", *arguments)
            stack.callback(process.kill)
            return process

        for kill in range(KILLS):
            driver, known = begin(kill), commits(settings)
            for _ in range(3):
                write(gateway, writes)
            wait_until(lambda driver=driver, known=known: not driver.running or commits(settings) > known, WITHIN_S)  # type: ignore[misc]
            write(gateway, writes)
            time.sleep(moments.random() * 2.0)  # The moment of the kill: in a batch, in a commit, between them.
            assert driver.running, (tmp_path / "driver.log").read_text()[-4000:]
            driver.kill()
            print(f"kill {kill}: {commits(settings)} commits, {len(writes.wanted())} samples")
        begin(KILLS)
        want = writes.wanted()
        wait_until(lambda: rows(settings) == want, WITHIN_S, describe=lambda: (len(rows(settings)), len(want)))


def write(gateway: Gateway, writes: LateWrites) -> None:
    """Write the next batch and wait for its answer."""
    batch = writes.batch()
    labels = [canonical_labels(one) for one, _, _ in batch]
    ts_ms = [at for _, some, _ in batch for at in some]
    values = [value for *_, some in batch for value in some]
    gateway.write(labels, ts_ms, values, [len(some) for _, some, _ in batch])
