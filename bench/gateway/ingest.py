"""The cost of a write: requests of several sizes over several numbers of connections, to standalone, to gateway, broker
and store, and to Prometheus as a control.

A cell is one workload, protocol, request size and number of connections. Its series are announced first. Then requests
go as fast as they are answered, and after that at half that rate, from which the latency of a loaded server is taken.
CPU is that of all processes of the target by role; the sender is a separate process, which shares the machine.
With --series, --request or --connections only that cell is run.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.gateway import ingest_targets as targets
from bench.gateway.ingest_targets import IngestTarget
from bench.gateway.sender_process import GRPC, REMOTE_WRITE, Phase, SenderCounts, SenderProcess
from bench.measure import machine, say
from tsdb.log.interface import METRICS, SERIES

SETTLE_S = 0.5  # A store has applied the written samples after this time.
IDLE_S = 2.0
# The share of a cell's seconds that passes before the measurement, after the announcement of its series.
WARM_SHARE = 0.25
NODE, NODE_ONCE = "node", "node_once"
AT_REST_REQUEST = 1000
AT_REST_REQUESTS = 600


@dataclass(frozen=True, slots=True)
class IngestCell:
    """workload: a number of series, or `node`. request: samples."""

    workload: str
    request: int
    connections: int


MAIN = (IngestCell("3500", 1000, 4), IngestCell("3500", 10, 64), IngestCell("3500", 100, 64))
MORE = (
    IngestCell("3500", 10, 4),
    IngestCell("3500", 100, 4),
    IngestCell("3500", 10_000, 4),
    IngestCell("3500", 1000, 1),
    IngestCell("3500", 1000, 64),
    IngestCell("3500", 10, 512),
    IngestCell("3500", 1000, 512),
    IngestCell(NODE, 1000, 4),
    IngestCell("100000", 1000, 4),
)


def main(argv: Sequence[str]) -> dict[str, object]:
    """Cells of each target, and bytes at rest of the embedded log and of Kafka's."""
    arguments = _arguments(argv)
    cells = _cells(arguments)
    found: list[dict[str, object]] = []
    idle: dict[str, object] = {}
    result: dict[str, object] = {"machine": machine(), "cells": found, "idle_cores": idle}
    for name, opened in _targets(arguments):
        with opened as target:
            idle[name] = _idle_cores(target)
            protocols = [one for one in arguments.protocol if one in target.addresses]
            for cell in cells:
                for protocol in protocols or list(target.addresses)[:1]:
                    found.append(_measure(target, cell, protocol, arguments.seconds, arguments.half_load))
        if name == targets.STANDALONE and arguments.at_rest:
            result["at_rest"] = _at_rest(arguments.protocol[0], arguments.flags)
        if name == targets.KAFKA and arguments.at_rest:
            result["at_rest_kafka"] = [_kafka_at_rest(one, arguments.flags) for one in (NODE_ONCE, "3500")]
    return result


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench ingest", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the main cells only, with a short time")
    parser.add_argument("--target", action="append", choices=(targets.STANDALONE, targets.KAFKA, targets.PROMETHEUS))
    parser.add_argument(
        "--protocol", action="append", choices=(GRPC, REMOTE_WRITE), help="of our targets; default grpc"
    )
    parser.add_argument("--series", help="series of a single cell, or `node`")
    parser.add_argument("--request", type=int, help="samples a request of a single cell")
    parser.add_argument("--connections", type=int, help="connections of a single cell")
    parser.add_argument("--seconds", type=float, help="of a cell without a pause, and again at half load")
    parser.add_argument("--half-load", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--at-rest", action=argparse.BooleanOptionalAction, help="bytes at rest of the logs")
    parser.add_argument("--prometheus", help="path of the control's binary; default: from PATH, where it is there")
    parser.add_argument("--flag", action="append", default=[], dest="flags", help="of our process, as --flag=--x=1")
    found = parser.parse_args(argv)
    single = found.series or found.request or found.connections
    found.seconds = found.seconds or (2.0 if found.quick else 8.0)
    found.protocol = found.protocol or [GRPC]
    found.at_rest = not single if found.at_rest is None else found.at_rest
    return found


def _cells(arguments: argparse.Namespace) -> list[IngestCell]:
    if arguments.series or arguments.request or arguments.connections:
        return [IngestCell(arguments.series or "3500", arguments.request or 1000, arguments.connections or 4)]
    return [*MAIN] if arguments.quick else [*MAIN, *MORE]


def _targets(arguments: argparse.Namespace) -> Iterator[tuple[str, AbstractContextManager[IngestTarget]]]:
    binary = targets.prometheus_binary(arguments.prometheus)
    wanted = arguments.target or [targets.STANDALONE, targets.KAFKA, targets.PROMETHEUS]
    if targets.STANDALONE in wanted:
        yield targets.STANDALONE, targets.standalone(arguments.flags)
    if targets.KAFKA in wanted:
        yield targets.KAFKA, targets.kafka(arguments.flags)
    if targets.PROMETHEUS in wanted and binary is None:
        say("no `prometheus` binary: no control")
    elif targets.PROMETHEUS in wanted and binary is not None:
        yield targets.PROMETHEUS, targets.prometheus(binary)


def _idle_cores(target: IngestTarget) -> dict[str, float]:
    before = target.cpu_s()
    time.sleep(IDLE_S)
    return {role: round((cpu - before[role]) / IDLE_S, 3) for role, cpu in target.cpu_s().items()}


def _measure(
    target: IngestTarget, cell: IngestCell, protocol: str, seconds: float, half_load: bool
) -> dict[str, object]:
    with SenderProcess(cell.workload, protocol, target.addresses[protocol]) as sender:
        shape = {"request": cell.request, "connections": cell.connections}
        first = _spent(target, sender, Phase(**shape, requests=-(-sender.series // cell.request)))
        sender.run(Phase(**shape, seconds=seconds * WARM_SHARE))
        full = _spent(target, sender, Phase(**shape, seconds=seconds))
        result: dict[str, object] = {
            "target": target.name, "protocol": protocol, **asdict(cell),
            "announced": {"series": sender.series, "cpu_us_a_series": first.micros_each(sender.series)},
            "full_load": full.report(),
        }  # fmt: skip
        if half_load:
            rate = full.sent.requests / full.sent.seconds / 2
            result["half_load"] = _spent(target, sender, Phase(**shape, seconds=seconds, rate=rate)).report()
    result["rss_mib"] = target.rss_mib()
    say(str(result))
    return result


@dataclass(frozen=True, slots=True)
class _Spent:
    """cpu_s: the CPU seconds of each role while `sent` was sent and applied."""

    sent: SenderCounts
    cpu_s: dict[str, float]

    def micros_each(self, count: int) -> dict[str, float]:
        return {role: round(cpu * 1e6 / count, 1) for role, cpu in self._with_ours().items()}

    def report(self) -> dict[str, object]:
        sent = self.sent
        cpu_s, samples, requests = self._with_ours(), max(1, sent.samples), max(1, sent.requests)
        return {
            "requests": sent.requests,
            "samples": sent.samples,
            "refused": sent.refused,
            "samples_per_s": round(sent.samples / sent.seconds),
            "cpu_s_a_million_samples": {role: round(cpu * 1e6 / samples, 2) for role, cpu in cpu_s.items()},
            "cpu_ms_a_request": {role: round(cpu * 1e3 / requests, 3) for role, cpu in cpu_s.items()},
            "sender_cpu_s": sent.sender_cpu_s,
            "latency_ms": sent.latency_ms,
        }

    def _with_ours(self) -> dict[str, float]:
        """With the sum of all roles but the broker, where there are several."""
        ours = {role: cpu for role, cpu in self.cpu_s.items() if role != targets.BROKER}
        return self.cpu_s if len(self.cpu_s) == 1 else {**self.cpu_s, "ours": sum(ours.values())}


def _spent(target: IngestTarget, sender: SenderProcess, phase: Phase) -> _Spent:
    before = target.cpu_s()
    sent = sender.run(phase)
    time.sleep(SETTLE_S)
    after = target.cpu_s()
    return _Spent(sent, {role: after[role] - before[role] for role in after})


def _at_rest(protocol: str, flags: Sequence[str]) -> dict[str, object]:
    """Bytes a sample after the host's metrics were written once, 1,000 samples a request: of the embedded log's files
    while standalone runs, its write-ahead file of at most 4 MiB included, and of all files once it has ended.
    """
    with tempfile.TemporaryDirectory(prefix="bench-ingest-") as name:
        folder = Path(name)
        with targets.standalone(flags, folder) as target:
            with SenderProcess(NODE_ONCE, protocol, target.addresses[protocol]) as sender:
                samples = sender.series * 1200
                sent = sender.run(Phase(AT_REST_REQUEST, 1, requests=samples // AT_REST_REQUEST))
            time.sleep(SETTLE_S)
            running = _sizes(folder)
        ended = _sizes(folder)
    found = {
        "samples": sent.samples,
        "refused": sent.refused,
        "running_log_bytes_a_sample": _log_bytes(running, sent),
        "log_bytes_a_sample": _log_bytes(ended, sent),
        "running_files": running,
        "files": ended,
    }
    say(str(found))
    return found


def _kafka_at_rest(workload: str, flags: Sequence[str]) -> dict[str, object]:
    """Bytes a sample of one replica on the broker's disk, 1,000 samples a request over 4 connections."""
    with tempfile.TemporaryDirectory(prefix="bench-ingest-") as name, targets.kafka(flags, Path(name)) as target:
        with SenderProcess(workload, GRPC, target.addresses[GRPC]) as sender:
            sent = sender.run(Phase(AT_REST_REQUEST, 4, requests=AT_REST_REQUESTS))
        segments = {topic: _segment_bytes(Path(name), topic) for topic in (METRICS, SERIES)}
        found = {
            "workload": workload,
            "samples": sent.samples,
            "refused": sent.refused,
            "log_bytes_a_sample": round(segments[METRICS] / sent.samples, 2),
            "series_bytes_a_series": round(segments[SERIES] / sender.series, 1),
        }
    say(str(found))
    return found


def _segment_bytes(folder: Path, topic: str) -> int:
    """Bytes of a topic's segments on all brokers below a folder. Indexes do not count, because Kafka allocates them
    ahead."""
    return sum(path.stat().st_size for path in folder.rglob("*.log") if path.parent.name.rpartition("-")[0] == topic)


def _sizes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in sorted(folder.rglob("*")) if path.is_file()}


def _log_bytes(sizes: Mapping[str, int], sent: SenderCounts) -> float:
    return round(sum(size for name, size in sizes.items() if name.startswith("log.")) / sent.samples, 2)
