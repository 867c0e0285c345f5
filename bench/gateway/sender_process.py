"""The sending process of bench/gateway/ingest.py, apart from the measured processes, so that its CPU is not theirs.

Each line on its stdin is a phase as JSON, each line on its stdout that phase's counts and latencies.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from bench.line_process import LineProcess

GRPC, REMOTE_WRITE = "grpc", "remote_write"


@dataclass(frozen=True, slots=True)
class Phase:
    """Requests of `request` samples until `seconds` are over or `requests` are sent.

    rate: requests a second of all connections; 0: as fast as they are answered.
    """

    request: int
    connections: int
    seconds: float = 3600.0
    requests: int = 1 << 60
    rate: float = 0.0


@dataclass(slots=True)
class SenderCounts:
    """answers: number of requests by answer. latency_ms: the latency of a paced request, from the time at which it was
    due.
    """

    samples: int = 0
    requests: int = 0
    seconds: float = 0.0
    sender_cpu_s: float = 0.0
    answers: dict[str, int] = field(default_factory=dict)
    latency_ms: dict[str, float] = field(default_factory=dict)

    @property
    def refused(self) -> dict[str, int]:
        """Requests that were not accepted, by answer."""
        return {answer: count for answer, count in self.answers.items() if answer != "ok"}


class SenderProcess:
    """The parent's side of the process. workload: a number of series, `node` or `node_once`. A context manager."""

    def __init__(self, workload: str, protocol: str, address: str) -> None:
        self._child = LineProcess("bench.gateway.sender_process", workload, protocol, address)
        self.series = int(self._child.answer()["series"])

    def run(self, phase: Phase) -> SenderCounts:
        """Send and wait for all answers."""
        return SenderCounts(**self._child.ask(json.dumps(dataclasses.asdict(phase))))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()


async def serve(workload: str, protocol: str, address: str) -> None:
    """Run the child process."""
    from bench.gateway.ingest_bodies import GrpcBodies, RemoteWriteBodies
    from bench.gateway.ingest_senders import GrpcSender, HttpSender
    from bench.gateway.ingest_series import Walk, node_data, node_data_once, synthetic

    sources = {"node": node_data, "node_once": node_data_once}
    series = sources[workload]() if workload in sources else synthetic(int(workload))
    encode = GrpcBodies(series.labels) if protocol == GRPC else RemoteWriteBodies(series.labels)
    walk = Walk(series)
    print(json.dumps({"series": len(series.labels)}), flush=True)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        sender = GrpcSender(address) if protocol == GRPC else HttpSender(address)
        sent = await _run(Phase(**json.loads(line)), sender, lambda samples: encode(walk.next(samples)))
        print(json.dumps(dataclasses.asdict(sent)), flush=True)


async def _run(phase: Phase, sender: Any, body: Any) -> SenderCounts:
    from bench.measure import percentiles_ms

    await sender.open(phase.connections)
    answers: Counter[str] = Counter()
    latencies: list[float] = []
    taken = 0
    started, cpu = time.perf_counter(), time.process_time()

    async def work(connection: int) -> None:
        nonlocal taken
        while taken < phase.requests:
            number = taken
            due = number / phase.rate if phase.rate else time.perf_counter() - started
            if due >= phase.seconds:
                return
            taken += 1
            data = body(phase.request)
            if phase.rate and (early := due - (time.perf_counter() - started)) > 0:
                await asyncio.sleep(early)
            began = started + due if phase.rate else time.perf_counter()
            answers[await sender.send(connection, data)] += 1
            latencies.append(time.perf_counter() - began)

    await asyncio.gather(*(work(connection) for connection in range(phase.connections)))
    sent = SenderCounts(
        samples=answers["ok"] * phase.request,
        requests=taken,
        seconds=round(time.perf_counter() - started, 3),
        sender_cpu_s=round(time.process_time() - cpu, 2),
        answers=dict(answers.most_common(5)),
        latency_ms=percentiles_ms(latencies) if latencies else {},
    )
    await sender.close()
    return sent


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
