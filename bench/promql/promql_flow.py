"""The flow of bench/promql: samples of other series by remote write at a steady rate, while queries are measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from bench.gateway.sender_process import REMOTE_WRITE, Phase, SenderCounts, SenderProcess

SERIES = 30_000
CONNECTIONS = 4
REQUEST = 2_500
LEAD_S = 0.3  # Samples flow for that long before the first query.
PHASE_S = 1.0  # A phase cannot be ended early.


class RemoteWriteFlow:
    """The flow of samples to one target. address: HOST:PORT/PATH. rate: samples/s. A context manager.

    phases: the requests sent in each phase.
    """

    def __init__(self, address: str, rate: int) -> None:
        self._sender = SenderProcess(str(SERIES), REMOTE_WRITE, address)
        self._rate = rate
        self.phases: list[SenderCounts] = []

    def announce(self) -> None:
        """Send each series once."""
        self._sender.run(Phase(REQUEST, CONNECTIONS, requests=SERIES // REQUEST))

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Samples flow in the context; its end waits for their last answer."""
        ended = threading.Event()
        thread = threading.Thread(target=self._run, args=(ended,))
        thread.start()
        try:
            time.sleep(LEAD_S)
            yield
        finally:
            ended.set()
            thread.join()

    def report(self) -> dict[str, object]:
        """Medians over the phases of the samples/s and of the write's p50 and p99, and refusals."""
        refused = sum(sum(one.refused.values()) for one in self.phases)
        rates = sorted(round(one.samples / one.seconds) for one in self.phases)
        latencies = {
            name: sorted(one.latency_ms[name] for one in self.phases)[len(self.phases) // 2] for name in ("p50", "p99")
        }
        return {"samples_per_s": rates[len(rates) // 2], "write_ms": latencies, "refused_requests": refused}

    def __enter__(self) -> Self:
        self._sender.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._sender.__exit__(kind, error, trace)

    def _run(self, ended: threading.Event) -> None:
        phase = Phase(REQUEST, CONNECTIONS, seconds=PHASE_S, rate=self._rate / REQUEST)
        while not ended.is_set():
            self.phases.append(self._sender.run(phase))
