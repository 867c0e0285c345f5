"""Replay: measures the way from a real broker through tsdb.replay into heads.

The controls, in the same run, are its parts: consuming the same records without decoding them, and decoding and
applying the same records from memory.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

from bench.ground import PARTITIONS_FEW, ago_ms, fill, kafka_log
from bench.heads import Poll, new_head, polls, register
from bench.measure import Spent, say, spent
from bench.workload import Workload
from tsdb.codec.records.log_record import decode_records
from tsdb.head.head import Head
from tsdb.log.interface import METRICS, Log, RecordBatch
from tsdb.log.open import open_log
from tsdb.model.clock import SystemClock
from tsdb.replay.replay import FreshStart, PartitionProgress, Replay
from tsdb.replay.series_feed import SeriesFeed
from tsdb.store.store import RECORDS_MAX

SHAPES = {"thin": (29, 200), "bunched": (6_000, 800)}  # Samples in a record, and number of scrapes.
SERIES_COUNT = 12_000
POLL_BYTES_MAX = 16 << 20  # Bytes of one partition in a poll, in the run from memory.
MAINTAIN_EVERY = 16  # Maintenance runs after this number of steps. A store uses a time instead.

Given = dict[int, list[Poll]]
"""Polls of each partition, by number."""


def main(argv: Sequence[str]) -> dict[str, object]:
    """Records and samples per CPU second for each size of record, and the ratio to consume + kernel."""
    parser = argparse.ArgumentParser(prog="bench replay", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a quarter of the samples, fewer rounds")
    arguments = parser.parse_args(argv)
    rounds = 2 if arguments.quick else arguments.rounds
    workload = Workload(SERIES_COUNT, PARTITIONS_FEW)
    result: dict[str, object] = {}
    for name, (record_samples, scrapes) in SHAPES.items():
        samples = scrapes // 4 if arguments.quick else scrapes
        with kafka_log(PARTITIONS_FEW) as url:
            start_ms = ago_ms(samples)
            records = fill(url, workload, start_ms, samples=samples, record_samples=record_samples)
            with open_log(url) as log:
                given = _from_memory(workload, start_ms, samples, record_samples)
                result[name] = _shape(log, workload, given, start_ms, rounds) | {"records": records}
        say(f"{name}: {result[name]}")
    return result


def _from_memory(workload: Workload, start_ms: int, scrapes: int, record_samples: int) -> Given:
    return {
        share.partition: list(
            polls(workload, share, start_ms, scrapes, record_samples, records_max=RECORDS_MAX, bytes_max=POLL_BYTES_MAX)
        )
        for share in workload.shares
    }


def _shape(log: Log, workload: Workload, given: Given, start_ms: int, rounds: int) -> dict[str, float]:
    records = sum(len(poll.offsets) for share in given.values() for poll in share)
    replays, consumes, kernels = [], [], []
    for _ in range(rounds + 1):
        consumes.append(_consume(log, records))
        kernels.append(_kernel(workload, given, start_ms))
        spent_here, samples = _replay(log, records)
        replays.append(spent_here)
    replay, consume, kernel = (_median(runs[1:]) for runs in (replays, consumes, kernels))
    return {
        "samples": samples,
        "replay_records_per_cpu_s": round(records / replay.cpu_s),
        "replay_samples_per_cpu_s": round(samples / replay.cpu_s),
        "replay_samples_per_s": round(samples / replay.wall_s),
        "consume_records_per_cpu_s": round(records / consume.cpu_s),
        "kernel_samples_per_cpu_s": round(samples / kernel.cpu_s),
        "replay_cpu_s": round(replay.cpu_s, 3),
        "consume_cpu_s": round(consume.cpu_s, 3),
        "kernel_cpu_s": round(kernel.cpu_s, 3),
        "ratio_to_consume_plus_kernel": round(replay.cpu_s / (consume.cpu_s + kernel.cpu_s), 2),
    }


def _consume(log: Log, records: int) -> Spent:
    starts = {(METRICS, partition): 0 for partition in range(PARTITIONS_FEW)}
    found = 0
    with spent() as result, log.reader(starts) as reader:
        while found < records:
            found += sum(
                len(e.offsets) for e in reader.poll(0.5, max_records=RECORDS_MAX) if isinstance(e, RecordBatch)
            )
    return result


def _kernel(workload: Workload, given: Given, start_ms: int) -> Spent:
    heads = {share.partition: new_head(share.partition) for share in workload.shares}
    for share in workload.shares:
        register(heads[share.partition], workload, share, start_ms)
    with spent() as result:
        for partition, waiting in given.items():
            head = heads[partition]
            for poll in waiting:
                records = decode_records(poll.values, poll.value_starts)
                head.unknown_ids(records)
                head.apply(records, poll.offsets, poll.broker_ms)
                head.maintain()
    return result


def _replay(log: Log, records: int) -> tuple[Spent, int]:
    heads = {partition: new_head(partition) for partition in range(PARTITIONS_FEW)}
    starts = dict.fromkeys(heads, 0)
    progress = {partition: PartitionProgress(0) for partition in heads}
    feed = SeriesFeed(log, heads, starts, 0)
    # The series are read before the measurement, which does not include them.
    feed.catch_up(list(heads), SystemClock(), 60.0)
    found, steps = 0, 0
    with spent() as result:
        reader = log.reader({(METRICS, partition): 0 for partition in heads})
        replay = Replay(reader, heads, progress, feed, clock=SystemClock(), renew=_never)
        try:
            while found < records:
                found += replay.step(0.5, records_max=RECORDS_MAX).records
                steps += 1
                if steps % MAINTAIN_EVERY == 0 or found == records:
                    for head in heads.values():
                        head.maintain()
        finally:
            replay.close()
    samples = sum(at.samples for at in progress.values())
    assert not any(head.state().holes for head in heads.values()), "nothing is lost"
    return result, samples


def _never(partition: int) -> FreshStart[Head]:
    raise AssertionError(f"partition {partition} lost offsets")


def _median(runs: list[Spent]) -> Spent:
    return Spent(statistics.median(run.wall_s for run in runs), statistics.median(run.cpu_s for run in runs))
