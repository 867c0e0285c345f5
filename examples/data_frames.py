"""Write a pandas DataFrame, and read an answer as another one. Needs the extra `kafka-tsdb[pandas]`.

python examples/data_frames.py [HOST:PORT]
"""

from __future__ import annotations

import sys
import time

import pandas as pd

from tsdb.client import ReadOptions, WriteBatch, connect

LABELS = ["job", "instance", "device"]


def measured(now_ms: int) -> pd.DataFrame:
    """A frame with a row for each measurement: labels, a time and a value."""
    rows = [("data_frames", host, disk, second) for host in "ab" for disk in ("sda", "sdb") for second in range(30)]
    frame = pd.DataFrame(rows, columns=[*LABELS, "second"])
    frame["time"] = pd.to_datetime(now_ms - 1000 * frame["second"], unit="ms")
    frame["free_bytes"] = 1e9 - 1e6 * frame["second"]
    return frame


def batch_of(frame: pd.DataFrame) -> WriteBatch:
    """One series for each distinct combination of labels. The client converts times of numpy to milliseconds."""
    batch = WriteBatch()
    for key, rows in frame.sort_values("time").groupby(LABELS):
        labels = {"__name__": "example_free_bytes", **dict(zip(LABELS, map(str, key), strict=True))}
        batch.add(labels, rows["time"].to_numpy(), rows["free_bytes"].to_numpy())
    return batch


def main(address: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    with connect(address) as client:
        written = client.write(batch_of(measured(now_ms)))
        options = ReadOptions(after=written.tokens)
        answer = client.select('example_free_bytes{job="data_frames"}', now_ms - 60_000, now_ms + 1, options=options)
    # A column for each label, then ts_ms and value.
    frame = answer.to_pandas()
    print(frame.groupby(["instance", "device"], observed=True)["value"].agg(["count", "min", "max"]))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:7410")
