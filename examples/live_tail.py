"""Receive samples while the store applies them: a live tail.

    python examples/live_tail.py [HOST:PORT]

Each applied sample arrives once, also over a reconnect. A thread writes here, so that there is something to receive.
"""

from __future__ import annotations

import sys
import threading
import time
from itertools import count

from tsdb.client import Client, WriteBatch, connect

SAMPLES = 10


def write_until(stop: threading.Event, client: Client) -> None:
    for number in count():
        if stop.wait(0.1):
            return
        batch = WriteBatch()
        labels = {"__name__": "example_ticks_total", "job": "live_tail", "instance": "here"}
        batch.add(labels, time.time_ns() // 1_000_000, float(number))
        client.write(batch)


def main(address: str) -> None:
    stop = threading.Event()
    with connect(address) as client:
        writer = threading.Thread(target=write_until, args=(stop, client))
        writer.start()
        try:
            received = 0
            for batch in client.watch('example_ticks_total{job="live_tail"}', duration_s=60.0):
                for labels, ts_ms, value in batch.samples():
                    print(labels["instance"], ts_ms, value)
                received += len(batch)
                if received >= SAMPLES:
                    break
        finally:
            stop.set()
            writer.join()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7410")
