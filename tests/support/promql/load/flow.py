"""Flow: samples of 10,000 further series by remote write at a steady rate, from a separate process."""

from __future__ import annotations

import http.client
import multiprocessing
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from support.promql.differential.dataset import StoredSamples
from support.promql.load.series import TIMEOUT_S, send
from tsdb.rules.unit_tests.notation import labels_of

METRIC = "flow_total"
SERIES = 10_000
REQUEST_SERIES = 250
PAUSE_S = 0.05  # 5,000 samples a second, which is a sample of each series every 2 s.


@contextmanager
def flowing(address: str) -> Iterator[None]:
    """Samples flow to HOST:PORT in the context. AssertionError at its end when a request was refused."""
    process = multiprocessing.get_context("spawn").Process(target=_flow, args=(address,), daemon=True)
    process.start()
    try:
        yield
        assert process.is_alive(), "the flow ended: a request failed"
    finally:
        process.kill()
        process.join()
        process.close()


def _flow(address: str) -> None:
    number = 0
    with closing(http.client.HTTPConnection(address, timeout=TIMEOUT_S)) as connection:
        while True:
            began = time.monotonic()
            send(connection, _request(number, time.time_ns() // 1_000_000))
            number += 1
            time.sleep(max(0.0, began + PAUSE_S - time.monotonic()))


def _request(number: int, at_ms: int) -> list[StoredSamples]:
    first = number * REQUEST_SERIES % SERIES
    return [
        StoredSamples(
            labels_of({"__name__": METRIC, "group": str(row % 20), "row": str(row)}), [(at_ms, float(number * 7))]
        )
        for row in range(first, first + REQUEST_SERIES)
    ]
