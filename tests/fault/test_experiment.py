"""Guarantee under attack: an experiment harms no read and no lag of production, whatever happens to it.

It lags behind a quota of the broker for its client id, is frozen, killed, and answers wrong. The querier of production
even has its address among the stores. An injected difference is found.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from support.fakes.lying_reader import LyingReader, with_wrong_value
from support.servers.deployments import Deployment, on_kafka
from support.servers.logs import wait_until
from support.servers.probes import partitions_ready
from support.servers.processes import Role, run_tsdb
from support.servers.quotas import release_readers, throttle_readers
from support.shared_servers import SharedBroker
from tsdb.client import Client, ReadOptions, WriteBatch, connect

NAME = "slow-slices"
PARTITIONS_HELD = "0-1"
SERIES, SAMPLES = 24, 50
READS = 40
WITHIN_S = 90.0
# Covers the scheduling noise of a machine with other tests. A read that waited for the experiment would take its 30 s.
MORE_S = 0.5
LAG_MS_MAX = 5_000
SLOW_BYTES_PER_S = 5_000
NOISE_SAMPLES = 40_000  # Incompressible, on all partitions: 320 kB.

pytestmark = pytest.mark.timeout(1200)  # Four starts of a process, on a busy machine.


@dataclass
class System:
    """Production with a shadow, which is the experiment behind a reader that lies as a test sets it."""

    production: Deployment
    querier: Role
    experiment: Role
    reader: LyingReader
    kept: Path
    start_ms: int
    base_s: float = math.inf
    answer: dict[bytes, bytes] = field(default_factory=dict)

    def read(self, client: Client) -> dict[bytes, bytes]:
        """The samples of all partitions, bit for bit."""
        found = client.select("trial", self.start_ms, self.start_ms + 1000 * SAMPLES)
        return {one.canonical: one.ts_ms.tobytes() + one.values.tobytes() for one in found.series}

    def median_s(self) -> float:
        """The median of reads through production's querier beside writes, which a machine that stands still at times
        leaves as it is. Each answer is right and no partition stays behind."""
        taken = []
        with connect(self.querier.grpc) as client, self.production.writer() as writer:
            for number in range(READS):
                began = time.perf_counter()
                assert self.read(client) == self.answer
                taken.append(time.perf_counter() - began)
                if number % 10 == 0:
                    write(writer, time.time_ns() // 1_000_000, 1, "beside")
                    wait_until(lambda: all(state.lag_ms < LAG_MS_MAX for state in client.coverage()), WITHIN_S)
        wait_until(lambda: all(partitions_ready(self.production.store).values()), WITHIN_S)
        return statistics.median(taken)

    def check_unharmed(self, trouble: str) -> None:
        median_s = self.median_s()
        print(f"{trouble}: median {median_s * 1000:.1f} ms, without the experiment {self.base_s * 1000:.1f} ms")
        assert median_s < self.base_s + MORE_S

    def shadow(self, figure: str) -> float:
        return self.querier.metrics().get(f"tsdb_shadow_{figure}", 0.0)

    def own(self, figure: str, label: str = "") -> float:
        return self.experiment.metrics()[f'tsdb_experiment_{figure}{{experiment="{NAME}"{label}}}']


def write(client: Client, start_ms: int, samples: int, metric: str = "trial") -> None:
    batch = WriteBatch()
    for number in range(SERIES):
        labels = {"__name__": metric, "job": "trial", "instance": str(number)}
        batch.add(labels, start_ms + 1000 * np.arange(samples), np.arange(samples) + number + 0.5)
    client.write(batch)


@pytest.fixture(scope="module")
def system(kafka: SharedBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp("experiment")
    # The samples are older than the minute in which a shadow may still differ.
    start_ms, kept = time.time_ns() // 10**9 * 1000 - 600_000, folder / "kept"
    with on_kafka(folder, kafka.bootstrap) as production:
        flags = ("--experiment", NAME, "--partitions", PARTITIONS_HELD, "--production", production.store.grpc)
        # The experiment has fewer rights to the cores than production, as it would on another node.
        experiment = Role(folder, "store", *production.log, *flags, wrapper=("nice", "-n", "19"))
        with contextlib.ExitStack() as stack, LyingReader(experiment.grpc) as reader:
            stack.push(experiment)
            shadow = ("--shadow", reader.address, "--share", "50%", "--shadow-dir", str(kept))
            stores = ("--stores", f"{production.store.grpc},{experiment.grpc}")
            with Role(folder, "querier", *production.log, *stores, *shadow) as querier, production.writer() as writer:
                write(writer, start_ms, SAMPLES)
                made = System(production, querier, experiment, reader, kept, start_ms)
                with production.reader() as client:
                    wait_until(lambda: len(made.read(client)) == SERIES, WITHIN_S)
                    made.answer = made.read(client)
                made.base_s = made.median_s()
                experiment.start()
                with connect(reader.address, timeout_s=WITHIN_S) as client:
                    client.coverage()  # The reader's connection waits before its next try.
                yield made


def test_production_reads_no_store_of_an_experiment_and_compares_the_partitions_that_it_has(system: System) -> None:
    wait_until(lambda: system.querier.metrics()["tsdb_query_stores_apart"] == 1, WITHIN_S)
    assert system.querier.metrics()["tsdb_query_stores_answering"] == 1
    before = system.shadow('reads_total{result="equal"}')
    system.check_unharmed("a healthy experiment")
    wait_until(lambda: system.shadow('reads_total{result="equal"}') >= before + READS // 5, WITHIN_S)
    assert system.shadow('reads_total{result="different"}') == 0
    assert system.shadow("partitions") == 2
    assert system.own("store_partition_ready", ',partition="0"') == 1
    assert not [name for name in system.experiment.metrics() if not name.startswith("tsdb_experiment_")]


def test_a_wrong_answer_of_an_experiment_is_found_and_shown_to_no_reader(system: System) -> None:
    system.reader.lie = with_wrong_value
    system.check_unharmed("an experiment that answers wrong")
    wait_until(lambda: system.shadow('reads_total{result="different"}') > 0, WITHIN_S)
    system.reader.lie = None
    done = run_tsdb("shadow", "diff", str(system.kept), "--newest", "1", "--output", "json")
    assert done.returncode == 1
    (read,) = json.loads(done.stdout)["reads"]
    assert (read["experiment"], set(read["differences"])) == (NAME, {"values"})


def test_an_experiment_that_lags_behind_its_quota_lags_alone(system: System, kafka: SharedBroker) -> None:
    noise = WriteBatch()
    rng, each = np.random.default_rng(5), NOISE_SAMPLES // SERIES
    times = time.time_ns() // 1_000_000 - each + np.arange(each)
    for number in range(SERIES):
        noise.add({"__name__": "noise", "job": "trial", "instance": str(number)}, times, rng.random(each))
    throttle_readers(kafka, SLOW_BYTES_PER_S, f"tsdb-experiment-{NAME}")
    try:
        with system.production.writer() as writer:
            token = writer.write(noise).tokens
        with system.production.reader() as client:
            client.select("noise", int(times[0]), int(times[-1]) + 1, options=ReadOptions(after=token))
        wait_until(lambda: any(system.own("store_lag_records", f',partition="{held}"') for held in (0, 1)), WITHIN_S)
        system.check_unharmed("an experiment that lags")
    finally:
        release_readers(kafka, f"tsdb-experiment-{NAME}")


def test_a_frozen_and_a_killed_experiment_delay_no_read(system: System) -> None:
    system.experiment.wait_ready(WITHIN_S)
    system.experiment.suspend()
    system.check_unharmed("a frozen experiment")
    system.experiment.kill()
    system.check_unharmed("a killed experiment")
    wait_until(lambda: 'tsdb_shadow_failures_total{reason="unreachable"}' in system.querier.metrics(), WITHIN_S)
