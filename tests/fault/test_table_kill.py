"""Attacks the promise that each accepted sample is in the Iceberg table once: its process is killed around commits.

Samples are a day late, so the chunk stage makes chunks of them each second, and kills come in the middle of reads and
commits. Each batch writes some of the times again with another value.
"""

from __future__ import annotations

import random
import struct
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from support.servers.logs import wait_until
from support.servers.processes import Role, tsdb_json
from tsdb.client import WriteBatch, connect
from tsdb.history.iceberg.catalog import TableSettings, create_table, load_table, open_catalog
from tsdb.history.iceberg.state import table_state

KILLS = 6
SERIES, SAMPLES = 20, 30
DAY_MS = 86_400_000


def test_each_sample_is_in_the_table_once_after_kills(tmp_path: Path) -> None:
    generator = random.Random(91)
    settings = TableSettings(f"sqlite:///{tmp_path}/tables.db")
    first_ms = time.time_ns() // 1_000_000 - DAY_MS
    written: dict[tuple[str, int], float] = {}
    with open_catalog(settings) as catalog:
        assert create_table(catalog, settings.name, 2)
    arguments = ("--time-set", "demo", "--tables", settings.catalog, "--tables-commit-interval-s", "0.1")
    with Role(tmp_path, "standalone", "--data-dir", str(tmp_path / "data"), *arguments) as role:
        for kill in range(KILLS):
            known = commits(settings)
            # Two writes, so that the second one's chunk comes while the first one's is committed.
            for _ in range(2):
                write(role, generator, first_ms, written)
            # Kills come after the first new commit, and soon after it.
            wait_until(lambda known=known: commits(settings) > known)  # type: ignore[misc]
            time.sleep(generator.random() * 0.3)  # The moment of the kill: in a read, in a commit, between the two.
            role.kill()
            role.start()
            print(f"kill {kill}: {commits(settings)} commits, {len(written)} samples")
        wait_until(lambda: len(rows(settings)) >= len(written), describe=lambda: (len(rows(settings)), len(written)))
        write(role, generator, first_ms, written)
        wait_until(lambda: rows(settings) == bits_of(written), describe=lambda: (len(rows(settings)), len(written)))
        checked = tsdb_json("tables", "check", "--tables", settings.catalog)
    assert checked["samples"] == len(written)
    assert checked["holes"] == 0


def write(role: Role, generator: random.Random, first_ms: int, written: dict[tuple[str, int], float]) -> None:
    """One accepted batch: random times of each series, some of them known."""
    batch = WriteBatch()
    sent = {}
    for number in range(SERIES):
        times = sorted(generator.sample(range(first_ms, first_ms + 600_000, 1_000), SAMPLES))
        values = [generator.random() for _ in times]
        batch.add({"__name__": f"killed_{number % 3}", "id": str(number)}, times, values)
        sent.update({(str(number), at): value for at, value in zip(times, values, strict=True)})
    with connect(role.grpc) as client:
        client.write(batch)
    written.update(sent)


def bits_of(written: dict[tuple[str, int], float]) -> dict[tuple[str, int], bytes]:
    return {key: struct.pack("<d", value) for key, value in written.items()}


def rows(settings: TableSettings) -> dict[tuple[str, int], bytes]:
    """The table's rows. Asserts that each (series, timestamp) is there once."""
    with open_catalog(settings) as catalog:
        found = load_table(catalog, settings.name).scan().to_arrow()
    ids = [dict(labels)["id"] for labels in found["labels"].to_pylist()]
    ts_ms = (found["ts"].cast(pa.int64()).to_numpy() // 1000).tolist()
    values = np.asarray(found["value"].to_numpy(), "<f8")
    keys = list(zip(ids, ts_ms, strict=True))
    assert len(set(keys)) == len(keys), "a (series, timestamp) is there twice"
    return {key: value.tobytes() for key, value in zip(keys, values, strict=True)}


def commits(settings: TableSettings) -> int:
    with open_catalog(settings) as catalog:
        state = table_state(load_table(catalog, settings.name))
    return 0 if state is None else state.emission
