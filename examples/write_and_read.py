"""Write samples with the Python client, and read them back.

    python examples/write_and_read.py [HOST:PORT]

A write returns when the log has the samples. A read that begins at once may still miss them; with the tokens of the
write the server waits until they are visible.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from tsdb.client import ReadOptions, WriteBatch, connect

MINUTE_MS = 60_000


def main(address: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    ts_ms = now_ms - 1000 * np.arange(60)[::-1]  # One sample a second, the newest is now.
    with connect(address) as client:
        batch = WriteBatch()
        for room in ("kitchen", "office"):
            labels = {"__name__": "example_temperature", "job": "write_and_read", "instance": room}
            batch.add(labels, ts_ms, 21 + np.sin(ts_ms / MINUTE_MS))
        written = client.write(batch)
        print(f"{written.samples} samples accepted")

        mine = ReadOptions(after=written.tokens)
        selector = 'example_temperature{job="write_and_read"}'
        start_ms, end_ms = now_ms - MINUTE_MS, now_ms + 1  # The end is excluded.
        for labels, times, values in client.select(selector, start_ms, end_ms, options=mine):
            print(labels["instance"], f"{len(times)} samples, the newest is {values[-1]:.2f}")

        # The server can reduce the samples: here to averages over 10 seconds.
        reduced = client.select(selector, start_ms, end_ms, step_ms=10_000, agg="avg", options=mine)
        for labels, _, values in reduced:
            print(labels["instance"], "averages:", " ".join(f"{value:.2f}" for value in values))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7410")
