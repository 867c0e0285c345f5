"""One server under the questions of bench/promql, which has the samples: its answers and its CPU are measured."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from bench.gateway.ingest_targets import IngestTarget
from bench.gateway.sender_process import REMOTE_WRITE
from bench.measure import percentiles_ms
from bench.promql.promql_clients import Clients, PromqlConnection
from bench.promql.promql_flow import RemoteWriteFlow
from bench.promql.promql_questions import Question
from bench.promql.promql_series import COUNTER, GAUGE, POINTS, PromqlSeries

ANSWERS_LEAST = 10
VISIBLE_WITHIN_S = 60.0
IDLE_S = 2.0
COMPARED = 'instance=~"host-0000.:9100"'  # 1,000 series of an answer: the client's JSON takes seconds for all.


def parsed(parser: argparse.ArgumentParser, argv: Sequence[str], series: int, seconds: float) -> argparse.Namespace:
    """Parse the arguments, with those that benches of both servers share. series, seconds: default values."""
    parser.add_argument("--prometheus", help="path of the control's binary; default: from PATH or beside this Python")
    parser.add_argument("--output", choices=("table", "json"), default="table", help="json: no table before the JSON")
    parser.add_argument("--quick", action="store_true", help="500 series and a short time")
    found = parser.parse_args(argv)
    found.series = found.series or (500 if found.quick else series)
    found.seconds = found.seconds or (0.2 if found.quick else seconds)
    return found


@dataclass(frozen=True, slots=True)
class Way:
    """cold: each selector comes for the first time."""

    name: str
    clients: int = 1
    cold: bool = False


WARM = Way("warm")
WAYS = (Way("cold", cold=True), WARM, Way("8 clients", clients=8))


@dataclass(slots=True)
class Side:
    """A target that has all samples. idle_cores: cores in use while no query runs, the flow included."""

    target: IngestTarget
    flow: RemoteWriteFlow | None = None
    idle_cores: float = 0.0

    @property
    def address(self) -> str:
        """HOST:PORT of its HTTP API."""
        return self.target.addresses[REMOTE_WRITE].partition("/")[0]

    def cpu_s(self) -> float:
        """CPU seconds of all its processes so far."""
        return sum(self.target.cpu_s().values())

    def loaded(self) -> AbstractContextManager[None]:
        """Samples flow meanwhile, where they shall."""
        return nullcontext() if self.flow is None else self.flow.flowing()

    def measure_idle(self) -> None:
        with self.loaded():
            before = self.cpu_s()
            time.sleep(IDLE_S)
            self.idle_cores = (self.cpu_s() - before) / IDLE_S

    def wait_visible(self, series: PromqlSeries, count: int) -> None:
        """Wait until all samples of both metrics, `count` series each, are answered. Raises RuntimeError when late."""
        at_s = int(series.times_ms.max()) // 1000 + 1
        give_up_at = time.monotonic() + VISIBLE_WITHIN_S
        with PromqlConnection(self.address) as client:
            for metric in (COUNTER, GAUGE):
                path = f"/api/v1/query?query=sum(count_over_time({metric}[2h]))&time={at_s}"
                while f'"{count * POINTS}"'.encode() not in client.body(path):
                    if time.monotonic() > give_up_at:
                        text = f"{metric} is not whole within {VISIBLE_WITHIN_S:g} s: {client.body(path)!r}"
                        raise RuntimeError(text)
                    time.sleep(0.1)

    def compared(self, question: Question, end_ms: int) -> bytes:
        """The answer to a question over few series, for `check_equal`."""
        with PromqlConnection(self.address) as client:
            return client.body(question.path(end_ms, 0, COMPARED))

    def measure(self, question: Question, way: Way, end_ms: int, seconds: float) -> dict[str, float]:
        """Percentiles in ms, CPU ms a query without what the target uses idle, and bytes of the largest answer."""
        # All series match it, and no other turn has this selector.
        clients = Clients(
            self.address,
            lambda turn: question.path(end_ms, turn, f'cold!="{turn}"' if way.cold else ""),
            way.clients,
        )
        with self.loaded():
            cpu, began = self.cpu_s(), time.perf_counter()
            clients.run(seconds, ANSWERS_LEAST)
            used = self.cpu_s() - cpu - self.idle_cores * (time.perf_counter() - began)
        return {
            **percentiles_ms(clients.seconds),
            "cpu_ms": round(max(used, 0.0) / len(clients.seconds) * 1e3, 2),
            "bytes": clients.answer_bytes,
        }
