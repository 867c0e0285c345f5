"""Spark start: seconds until a session stands, and until its first Python task has run, in new processes."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence

from bench.measure import say

ROUNDS = 3
_CHILD = """
import json, time
began = time.perf_counter()
from bench.spark.spark_ground import local_session
imported = time.perf_counter()
with local_session(2) as spark:
    session = time.perf_counter()
    def first(_):
        from spark_backfill.building.task import run_item
        return [1]
    count = lambda: spark.sparkContext.parallelize(range(2), 2).mapPartitions(first).count()
    count()
    job = time.perf_counter()
    count()
    again = time.perf_counter()
print(json.dumps([imported - began, session - imported, job - session, again - job]))
"""


def main(argv: Sequence[str]) -> dict[str, object]:
    """Medians over new processes."""
    parser = argparse.ArgumentParser(prog="bench spark_start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--quick", action="store_true", help="one round")
    arguments = parser.parse_args(argv)
    taken = []
    for _ in range(1 if arguments.quick else arguments.rounds):
        done = subprocess.run([sys.executable, "-c", _CHILD], stdout=subprocess.PIPE, check=True)
        taken.append(json.loads(done.stdout.splitlines()[-1]))
        say(f"import, session, first job, second job: {[round(seconds, 2) for seconds in taken[-1]]} s")
    names = ("import_s", "session_s", "first_job_s", "second_job_s")
    return {name: round(statistics.median(each), 2) for name, each in zip(names, zip(*taken, strict=True), strict=True)}
