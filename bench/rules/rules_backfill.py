"""Measures a backfill of rules on Spark: seconds of `spark_backfill.evaluate_rules` over days of history, and the ratio
of real time to wall time.

History has 100 metrics of some instances every 15 s; each metric has a group of ten rules, two of them alerts, which
are evaluated every 15 s. A loader in this process brings what the job writes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np

from bench.ground import make_topics
from bench.measure import machine, say
from bench.rules.rules_cost import METRICS, RULES, STEP_MS, rule_file, series_labels
from bench.spark.spark_ground import local_session, spark_spent
from spark_backfill.jobs.rules.job import RulesOptions, evaluate_rules
from spark_backfill.jobs.rules.work import RuleTexts
from spark_backfill.places import Places
from spark_backfill.result import RulesResult
from tsdb.backup.restore import write_all
from tsdb.codec.chunk.chunk import Fragment, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.records.series_record import Announcement
from tsdb.history.interface import ChunkStore, Loaded
from tsdb.history.loader.loader import Loader, LoaderOptions
from tsdb.history.open import open_history_admin
from tsdb.history.shared_settings import ensure_history
from tsdb.log.interface import METRICS as LOG
from tsdb.log.interface import Log
from tsdb.log.open import open_log
from tsdb.log.settings import LogSettings
from tsdb.log.topics import LOG_APPEND_TIME
from tsdb.model.clock import SystemClock
from tsdb.model.labels import series_id
from tsdb.model.meta import MetaSettings
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.time_set import PRODUCTION
from tsdb.model.window import floor_to, index_epoch

INSTANCES = 20
DAYS = 2
CORES = 2
META = MetaSettings(partitions=2)
DAY_MS = 24 * 3_600_000
NEVER = 1 << 40


def main(argv: Sequence[str]) -> dict[str, object]:
    """Seconds, and the range over them."""
    parser = argparse.ArgumentParser(prog="bench rules_backfill", description=__doc__)
    parser.add_argument("--rules", type=int, default=RULES)
    parser.add_argument("--instances", type=int, default=INSTANCES, help="series of each metric")
    parser.add_argument("--days", type=float, default=DAYS)
    parser.add_argument("--cores", type=int, default=CORES)
    parser.add_argument("--quick", action="store_true", help="50 rules, a quarter of a day")
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.rules, arguments.days = 50, 0.25
    end_ms = floor_to(SystemClock().now_ms() - PRODUCTION.least_hold_ms - 2 * DAY_MS, PRODUCTION.window_ms)
    start_ms = floor_to(end_ms - round(arguments.days * DAY_MS), PRODUCTION.window_ms)
    texts = RuleTexts((("rules.yaml", rule_file(arguments.rules, "15s").encode()),))
    done: list[RulesResult] = []
    with (
        tempfile.TemporaryDirectory(prefix="bench-rules-") as folder,
        local_session(arguments.cores) as spark,
        _history(folder, arguments.instances, start_ms - PRODUCTION.window_ms, end_ms) as places,
    ):
        spark.sparkContext.parallelize(range(8), 8).map(str).collect()  # Starts the workers.

        def run(job_id: str) -> None:
            done.append(evaluate_rules(spark, texts, places, META, RulesOptions(start_ms, end_ms, job_id)))

        first = spark_spent(spark, partial(run, "first"))
        say(f"first: {first}")
        again = spark_spent(spark, partial(run, "again"))
    seconds = (end_ms - start_ms) / 1000
    return {
        "machine": machine(),
        "load_average": os.getloadavg(),
        "rules": arguments.rules,
        "series": METRICS * arguments.instances,
        "days": seconds * 1000 / DAY_MS,
        "evaluations": done[0].evaluations,
        "results": done[0].results,
        "written": done[0].samples,
        "written_again": done[1].samples,
        "wall_s": round(first.wall_s, 1),
        "cpu_s": round(first.cpu_s, 1),
        "again_wall_s": round(again.wall_s, 1),
        "times_real_time": round(seconds / first.wall_s),
    }


@contextmanager
def _history(folder: str, instances: int, start_ms: int, end_ms: int) -> Iterator[Places]:
    places = Places(f"sqlite:///{folder}/log.db", history=f"sqlite:///{folder}/history.db")
    make_topics(places.log, META.partitions, LOG_APPEND_TIME)
    with open_history_admin(places.history) as admin:
        ensure_history(admin, META)
    with open_log(places.log, settings=LogSettings(embedded_guest=True)) as log, places.open_history() as history:
        _fill(log, history, instances, start_ms, end_ms)
        loader = Loader(log, history, LoaderOptions(PRODUCTION, commit_interval_s=0.2), SystemClock(), seed=1)
        loader.start()
        try:
            yield places
        finally:
            loader.close()
            loader.join(30.0)


def _fill(log: Log, history: ChunkStore, instances: int, start_ms: int, end_ms: int) -> None:
    rng, rule = np.random.default_rng(1), PlacementRule()
    begins = [
        partial(history.write_loaded, Loaded(log.topic_id(LOG), number, NEVER, SystemClock().now_ms()))
        for number in range(META.partitions)
    ]
    count = PRODUCTION.window_ms // STEP_MS
    for number in range(METRICS * instances):
        canonical = series_labels(number, METRICS * instances)
        place, own = rule.place(canonical), series_id(canonical)
        partition = partition_of(place.placement, META.partitions)
        for epoch in {index_epoch(own, ms) for ms in (start_ms, end_ms)}:
            announced = Announcement(own, epoch, place.pack_id, canonical)
            begins.append(partial(history.write_series, announced, partition))
        value = float(10**8)
        for window_ms in range(start_ms, end_ms, PRODUCTION.window_ms):
            values = value + np.cumsum(rng.integers(1, 5_000, count)).astype(np.float64)
            value = float(values[-1])
            fragment = Fragment(
                place.pack_id,
                window_ms,
                np.array([own], np.uint64),
                np.array([0, count], np.int64),
                window_ms + np.arange(count, dtype=np.int64) * STEP_MS + number % STEP_MS,
                values,
                np.zeros(count, np.int64),
            )
            (chunk,) = encode_chunk(fragment, window_ms=PRODUCTION.window_ms)
            key = ChunkKey(place.pack_id, window_ms, Kind.BASE, 0, 0)
            begins.append(partial(history.write, key, chunk))
    write_all(begins, SystemClock())
    say(f"history has {METRICS * instances} series")
