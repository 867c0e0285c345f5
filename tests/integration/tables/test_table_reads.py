"""Attacks the promise that the Iceberg table has the querier's samples, bit for bit, for readers that know nothing of
this store: real data, late, repeated and out of order, with keepers that are killed around their commits."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.table import Table

from support.data import recordings
from support.data.table_rows import NAME, reopened, settings_in
from support.drills.history_drill import HistoryDrill
from support.servers.duck import iceberg_connection
from support.servers.logs import wait_until
from support.servers.querier_node import QuerierNode
from support.servers.way import Way
from support.servers.ways import new_way
from tsdb.history.iceberg import keeper as keeper_module
from tsdb.history.iceberg.catalog import create_table, open_catalog
from tsdb.history.iceberg.emission import emit
from tsdb.history.iceberg.keeper import KeeperOptions, TableKeeper
from tsdb.history.iceberg.state import TableState, table_state
from tsdb.history.open import open_history_reads
from tsdb.log.interface import CHUNKS, METRICS, Log
from tsdb.model.clock import SystemClock
from tsdb.model.errors import Unavailable
from tsdb.model.labels import canonical_labels, metric_name

WINDOWS = 8
READS = 100
DEATHS_MIN = 4
Answer = dict[bytes, tuple[bytes, bytes]]  # Labels: times in ms and values, as bytes.

EXPRESSIONS = ("{}", "sum({})", "rate({}[5m])", "max_over_time({}[1h])", "count by (mode) ({})", "{} offset 10m")

READ = """
SELECT metric, labels, epoch_ms(ts) AS ts_ms, value FROM iceberg_scan(?)
WHERE (metric = ? OR ? = '') AND ts >= to_timestamp(?::DOUBLE / 1000) AND ts < to_timestamp(?::DOUBLE / 1000)
"""


class Deaths:
    """Stands for processes that end before or after a commit. Seeded; the threads of keepers share it."""

    def __init__(self, seed: int) -> None:
        self._generator = random.Random(seed)
        self._lock = threading.Lock()
        self.before = self.after = 0

    def emit(self, *arguments: Any) -> Any:
        """The real one, with a death around some calls."""
        with self._lock:
            fate = self._generator.random()
            self.before += fate < 0.25
            self.after += fate > 0.75
        if fate < 0.25:
            raise Unavailable("killed before the commit", reason="killed", retry_after_s=0.0)
        emitted = emit(*arguments)
        if fate > 0.75:
            raise Unavailable("killed after the commit", reason="killed", retry_after_s=0.0)
        return emitted


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> Deaths:
    deaths = Deaths(81)
    monkeypatch.setattr(keeper_module, "emit", deaths.emit)
    monkeypatch.setattr(keeper_module, "RETRY_S", 0.01)
    return deaths


@contextmanager
def keeping(log: Log, folder: Path, way: Way) -> Iterator[None]:
    """Two keepers of one table for the block."""
    with open_catalog(settings_in(folder)) as catalog:
        create_table(catalog, NAME, 3)
    options = KeeperOptions(settings_in(folder), way.times, interval_s=0.1)
    keepers = [TableKeeper(log, options, SystemClock()) for _ in range(2)]
    for keeper in keepers:
        keeper.start()
    try:
        yield
    finally:
        for keeper in keepers:
            keeper.close()
        assert all(keeper.join(60.0) for keeper in keepers)
        assert [keeper.failure() for keeper in keepers] == [None, None]


def whole(log: Log, folder: Path, way: Way) -> TableState | None:
    """The state of the table once it has every record of `chunks`; None before."""
    state = table_state(reopened(folder))
    ends = log.high_watermarks(CHUNKS, range(way.partitions))
    return state if state is not None and state.next_offsets == ends else None


@pytest.fixture(params=["embedded", "kafka"])
def log_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "kafka":
        return f"kafka://{request.getfixturevalue('kafka').bootstrap}"
    return f"sqlite:///{tmp_path}/log.db"


def test_readers_of_the_table_get_the_queriers_samples(log_url: str, tmp_path: Path, deaths: Deaths) -> None:
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
        with over_table(way, drill, tmp_path) as querier:
            compare(way, drill, querier, reopened(tmp_path), through_ms, rng)
    assert min(deaths.before, deaths.after) >= DEATHS_MIN, "keepers died before and after commits"


@contextmanager
def over_table(way: Way, drill: HistoryDrill, folder: Path) -> Iterator[QuerierNode]:
    """A querier of the same stores, whose history is the table."""
    with (
        closing(open_history_reads(f"iceberg+file://{folder}/catalog-files/tsdb/samples")) as history,
        QuerierNode(
            [drill.node.address],
            history,
            topic_id=way.log.topic_id(METRICS),
            partitions=way.partitions,
            time_set=way.times,
        ) as querier,
    ):
        yield querier


def compare(
    way: Way, drill: HistoryDrill, over: QuerierNode, table: Table, through_ms: int, rng: random.Random
) -> None:
    """Random reads and one of all samples: by both queriers, by DuckDB, by pyiceberg."""
    names = sorted({metric_name(one).decode() for one in way.oracle.labels})
    first_ms, samples = way.oracle.min_ts_ms, 0
    reads: list[tuple[str, int, int]] = []
    for since_ms in (first_ms, int(way.recording.ts_ms[0])):
        for _ in range(READS):
            start_ms, end_ms = sorted(rng.sample(range(since_ms, through_ms), 2))
            reads.append((rng.choice(names), start_ms, end_ms))
    reads.append(("", first_ms, through_ms))
    with iceberg_connection() as duck:
        for name, start_ms, end_ms in reads:
            selector = name or '{__name__=~".+"}'
            want = querier_answer(drill.querier, selector, start_ms, end_ms)
            assert querier_answer(over, selector, start_ms, end_ms) == want, f"{selector} in [{start_ms}, {end_ms})"
            found = duck.execute(READ, [table.metadata_location, name, name, start_ms, end_ms]).arrow().read_all()
            assert answer(found, found["ts_ms"].to_numpy()) == want, f"DuckDB, {selector} in [{start_ms}, {end_ms})"
            found = scanned(table, name, start_ms, end_ms)
            ts_ms = found["ts"].cast(pa.int64()).to_numpy() // 1000
            assert answer(found, ts_ms) == want, f"pyiceberg, {selector} in [{start_ms}, {end_ms})"
            samples += sum(len(times) // 8 for times, _ in want.values())
    compare_promql(drill.querier, over, names, first_ms, through_ms, rng)
    everything = way.oracle.want(range(len(way.oracle.labels)), first_ms, through_ms)
    assert {one: bits.tobytes() for one, (_, bits) in everything.items()} == {
        one: values for one, (_, values) in want.items()
    }
    print(f"\n{len(reads)} reads of {samples} samples, {len(everything)} series: the same by all")


def compare_promql(
    one: QuerierNode, other: QuerierNode, names: Sequence[str], first_ms: int, end_ms: int, rng: random.Random
) -> None:
    """Random expressions at random steps: the same bits from both histories."""
    for _ in range(READS // 4):
        name = rng.choice(names)
        expression = rng.choice(EXPRESSIONS).format(name)
        start_ms, last_ms = sorted(rng.sample(range(first_ms, end_ms), 2))
        step_ms = max(1_000, (last_ms - start_ms) // 200)
        want, found = (querier.client.query_range(expression, start_ms, last_ms, step_ms) for querier in (one, other))
        assert want.canonical == found.canonical, f"{expression} in [{start_ms}, {last_ms}]"
        assert want.ts_ms.tobytes() == found.ts_ms.tobytes()
        assert want.values.tobytes() == found.values.tobytes(), f"{expression} in [{start_ms}, {last_ms}]"


def querier_answer(querier: QuerierNode, selector: str, start_ms: int, end_ms: int) -> Answer:
    found = querier.client.select(selector, start_ms, end_ms)
    return {one.canonical: (one.ts_ms.tobytes(), one.values.tobytes()) for one in found.series}


def scanned(table: Table, name: str, start_ms: int, end_ms: int) -> pa.Table:
    def text(at_ms: int) -> str:
        return np.datetime_as_string(np.datetime64(at_ms, "ms"), timezone="UTC").replace("Z", "+00:00")

    within = f"ts >= '{text(start_ms)}' and ts < '{text(end_ms)}'"
    if name:
        within += f" and metric == '{name}'"
    return table.scan(row_filter=within, selected_fields=("metric", "labels", "ts", "value")).to_arrow()


def answer(found: pa.Table, ts_ms: Sequence[int] | np.ndarray[Any, Any]) -> Answer:
    """The rows by series, sorted by time."""
    rows: dict[bytes, list[tuple[int, bytes]]] = {}
    values = found["value"].to_numpy()
    columns = zip(found["metric"].to_pylist(), found["labels"].to_pylist(), ts_ms, values, strict=True)
    for metric, labels, ts, value in columns:
        pairs = labels.items() if isinstance(labels, dict) else labels
        rows.setdefault(canonical_labels([("__name__", metric), *pairs]), []).append((int(ts), value.tobytes()))
    return {
        one: (np.array([ts for ts, _ in some], np.int64).tobytes(), b"".join(value for _, value in some))
        for one, some in ((one, sorted(some)) for one, some in rows.items())
    }
