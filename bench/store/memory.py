"""Memory: resident memory of a fresh store process over W(100,000), and its parts. The control is a process with the
same imports and no samples.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

from bench.ground import PARTITIONS, ago_ms, embedded_log, fill, kafka_log
from bench.measure import rss_mib, say, uss_mib
from bench.store_process import StoreProcess
from bench.workload import SAMPLES, Workload
from tsdb.ops.interpreter import TRIM_EVERY_S

SETTLE_S = 1.5 * TRIM_EVERY_S  # After a replay merging continues for a moment, then malloc_trim returns memory.


def main(argv: Sequence[str]) -> dict[str, object]:
    """RSS in MiB, and bytes a sample above the control."""
    parser = argparse.ArgumentParser(prog="bench memory", description=__doc__)
    parser.add_argument("--series", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=PARTITIONS)
    parser.add_argument("--embedded", action="store_true", help="on the embedded log instead of Kafka")
    parser.add_argument("--quick", action="store_true", help="a tenth of the series")
    arguments = parser.parse_args(argv)
    series = arguments.series // 10 if arguments.quick else arguments.series
    ground = embedded_log if arguments.embedded else kafka_log
    with ground(arguments.partitions) as url:
        with StoreProcess(url) as store:
            store.wait_ready()
            time.sleep(SETTLE_S)
            control = rss_mib(store.pid)
        say(f"control {control} MiB")
        workload = Workload(series, arguments.partitions)
        fill(url, workload, ago_ms())
        with StoreProcess(url) as store:
            ready = store.wait_ready()
            at_ready = rss_mib(store.pid)
            time.sleep(SETTLE_S)
            state, settled, unshared = store.state(), rss_mib(store.pid), uss_mib(store.pid)
    samples = series * SAMPLES
    assert state["samples"] == samples, f"{state['samples']} of {samples} samples held"
    return {
        "series": series,
        "samples": samples,
        "rss_mib": settled,
        "rss_without_shared_libraries_mib": unshared,
        "rss_at_ready_mib": at_ready,
        "rss_control_mib": control,
        "heads_mib": round(state["bytes"] / (1 << 20), 1),
        "heads_bytes_per_sample": round(state["bytes"] / samples, 2),
        "bytes_per_sample_beyond_control": round((settled - control) * (1 << 20) / samples, 2),
        "label_bytes": sum(map(len, workload.labels)),
        "slices": state["slices"],
        "ready_s": ready["ready_s"],
        "cpu_s": round(state["cpu_s"], 2),
    }
