"""Attacks the promise that the Iceberg table has the querier's samples, bit for bit, for readers that know nothing of
this store: real data, late, repeated and out of order, with keepers that are killed around their commits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support.data import recordings
from support.data.table_rows import reopened
from support.drills.history_drill import HistoryDrill
from support.drills.table_drill import by_duckdb, by_pyiceberg, compare, dying_keepers, keeping, over_table, whole
from support.servers.duck import iceberg_connection
from support.servers.logs import wait_until
from support.servers.ways import new_way

WINDOWS = 8
READS = 100
DEATHS_MIN = 4


@pytest.fixture(params=["embedded", "kafka"])
def log_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "kafka":
        return f"kafka://{request.getfixturevalue('kafka').bootstrap}"
    return f"sqlite:///{tmp_path}/log.db"


def test_readers_of_the_table_get_the_queriers_samples(
    log_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths = dying_keepers(monkeypatch, 81)
    recording = recordings.node(WINDOWS, every=12)
    ends, rng = recording.window_ends, random.Random(82)
    with (
        new_way(log_url, f"sqlite:///{tmp_path}/history.db", recording, seed=83) as way,
        keeping(way.log, tmp_path, way),
        HistoryDrill(way, rng) as drill,
    ):
        drill.run(ends[: WINDOWS // 2], outage=(), random_reads=0)
        drill.write_late(drill.healthy, "late")
        drill.run(ends[WINDOWS // 2 :], outage=(), random_reads=0)
        drill.read_evicted(ends, random_reads=0)
        wait_until(lambda: whole(way.log, tmp_path, way) is not None)
        state = whole(way.log, tmp_path, way)
        assert state is not None
        through_ms = min(one.emitted_through_ms for one in state.cut.values())
        newest = {number: token.record_offset for number, token in way.tokens.items()}
        assert all(state.cut[number].position > offset for number, offset in newest.items())
        table = reopened(tmp_path)
        with over_table(way, drill, tmp_path) as querier, iceberg_connection() as duck:
            readers = {"DuckDB": by_duckdb(duck, table), "pyiceberg": by_pyiceberg(table)}
            compare(way, drill, querier, readers, through_ms, rng, reads=READS)
    assert min(deaths.before, deaths.after) >= DEATHS_MIN, "keepers died before and after commits"
