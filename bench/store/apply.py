"""Apply: decode records and apply them to a head, in samples per CPU second, without a log.

The control is decoding alone. Maintenance (sealing, merging) is measured separately.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bench.heads import Poll, new_head, polls, register, sample_count
from bench.workload import SAMPLES, Workload
from tsdb.codec.records.log_record import decode_records
from tsdb.log.interface import POLL_RECORDS_MAX

RECORD_SAMPLES = {"thin_29": 29, "scrape_100": 100, "bunched_6000": 6_000}
POLL_BYTES_MAX = 4 << 20  # The bytes of one partition in a poll.
SERIES = 6_000  # Series in one partition.
START_MS = 1_699_992_000_000  # A multiple of 4 h.


def main(argv: Sequence[str]) -> dict[str, object]:
    """Samples per CPU second for each size of record, and ns a sample for each step."""
    parser = argparse.ArgumentParser(prog="bench apply", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer samples and rounds")
    arguments = parser.parse_args(argv)
    scrapes, rounds = (40, 2) if arguments.quick else (SAMPLES, arguments.rounds)
    workload = Workload(SERIES, 1)
    return {name: _shape(workload, size, scrapes, rounds) for name, size in RECORD_SAMPLES.items()}


def _shape(workload: Workload, record_samples: int, scrapes: int, rounds: int) -> dict[str, float]:
    share = workload.shares[0]
    given = list(
        polls(
            workload, share, START_MS, scrapes, record_samples, records_max=POLL_RECORDS_MAX, bytes_max=POLL_BYTES_MAX
        )
    )
    _round(workload, given[:2])
    results = [_round(workload, given) for _ in range(rounds)]
    samples = len(share.rows) * scrapes
    ns = {part: statistics.median(one[part] for one in results) / samples * 1e9 for part in results[0]}
    kernels = ns["decode"] + ns["resolve"] + ns["append"]
    return {
        "samples_per_cpu_s": round(1e9 / kernels),
        "with_maintenance_samples_per_cpu_s": round(1e9 / (kernels + ns["maintain"])),
        "records_per_cpu_s": round(sum(len(poll.offsets) for poll in given) / (kernels * samples / 1e9)),
        **{f"{part}_ns_per_sample": round(value, 1) for part, value in ns.items()},
    }


def _round(workload: Workload, given: Sequence[Poll]) -> dict[str, float]:
    head = new_head()
    register(head, workload, workload.shares[0], START_MS)
    cpu: defaultdict[str, float] = defaultdict(float)
    samples = 0
    for poll in given:
        with _part(cpu, "decode"):
            records = decode_records(poll.values, poll.value_starts)
        with _part(cpu, "resolve"):
            head.unknown_ids(records)
        with _part(cpu, "append"):
            samples += head.apply(records, poll.offsets, poll.broker_ms).samples
        assert samples == 0 or sample_count(records), "every poll has samples"
        with _part(cpu, "maintain"):
            head.maintain()
    assert head.sizes().samples == samples, "the head holds what was applied"
    return dict(cpu)


@contextmanager
def _part(cpu: defaultdict[str, float], name: str) -> Iterator[None]:
    started = time.process_time()
    yield
    cpu[name] += time.process_time() - started
