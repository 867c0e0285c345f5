"""Native histograms and start timestamps of the client are read as they were written, before and after a kill."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from support.servers.gateway_server import call, ingest_stub
from support.servers.processes import Role
from tsdb.client import Histogram, InvalidRequest, ReadOptions, RequestLimits, WriteBatch, connect

EXPONENTIAL = Histogram(3, 8.5, {-20: 4, -19: 0, 2: 1}, {5: 2}, zero_count=3, zero_threshold=2.0**-128)
CUSTOM = Histogram(sum=1.5, positive={0: 1, 3: 2}, bounds=(0.1, 0.5, 2.5))


def test_histograms_of_the_client_come_back_as_they_were_written(tmp_path: Path) -> None:
    keep = ("standalone", "--data-dir", str(tmp_path / "data"), "--native-histograms", "keep")
    with Role(tmp_path, *keep) as role:
        now_ms = time.time_ns() // 1_000_000
        times = [now_ms - 3000, now_ms - 2000, now_ms - 1000]
        batch = WriteBatch()
        batch.add({"__name__": "h", "kind": "exponential"}, times, [EXPONENTIAL] * 3, start_ms=now_ms - 60_000)
        mixed: list[Histogram | float] = [7.5, CUSTOM, CUSTOM]
        batch.add({"__name__": "h", "kind": "mixed"}, times, mixed)
        with connect(role.grpc) as client:
            written = client.write(batch)
        assert written.samples == 6
        refuse_a_bad_one(role, now_ms)
        options = ReadOptions(after=written.tokens)
        check(role, now_ms, options)
        role.kill()
        role.start()
        check(role, now_ms, options)


def refuse_a_bad_one(role: Role, now_ms: int) -> None:
    """The gateway checks what a client of another kind may send."""
    batch = WriteBatch()
    batch.add({"__name__": "h"}, now_ms, CUSTOM)
    (part,) = batch.parts(RequestLimits())
    part.request.histograms.counts = np.array([9.0]).tobytes()
    with ingest_stub(int(role.grpc.rsplit(":", 1)[1])) as stub, pytest.raises(InvalidRequest, match="count mismatch"):
        call(stub, part.request)


def check(role: Role, now_ms: int, options: ReadOptions) -> None:
    with connect(role.grpc) as client:
        found = client.select("h", now_ms - 5000, now_ms, options=options)
        rows = {one.labels["kind"]: found.histograms(index) for index, one in enumerate(found.series)}
        assert rows == {"exponential": [EXPONENTIAL] * 3, "mixed": [None, CUSTOM, CUSTOM]}
        starts = found.to_arrow(start_times=True)["start_ms"].to_pylist()
        assert sorted(starts, key=str) == [now_ms - 60_000] * 3 + [None] * 3
        instant = client.query("h", now_ms)
        newest = {labels["kind"]: instant.histograms(index)[0] for index, (labels, _, _) in enumerate(instant)}
        assert {kind: one and one.count for kind, one in newest.items()} == {"exponential": 10.0, "mixed": 3.0}
        ranges = client.query("h[10s]", now_ms).to_pandas()
        assert ranges["histogram"].isna().sum() == 1
        (quantile,) = client.query('histogram_quantile(0.5, h{kind="mixed"})', now_ms).values.tolist()
        assert quantile == 2.5
