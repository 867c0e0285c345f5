"""Readers of the Iceberg table beside queriers, and keepers of it that are killed around their commits."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyiceberg.table import Table

from support.data.table_rows import NAME, reopened, settings_in
from support.drills.history_drill import HistoryDrill
from support.servers.querier_node import QuerierNode
from support.servers.way import Way
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

if TYPE_CHECKING:  # Tests without Spark load none.
    from pyspark.sql import SparkSession

    from spark_backfill.places import Places
    from support.spark.iceberg_reader import SparkIceberg

Answer = dict[bytes, tuple[bytes, bytes]]  # Labels: times in ms and values, as bytes.
Reader = Callable[[str, int, int], Answer]  # Takes a metric (empty: all of them), start and end in ms.
COLUMNS = ("metric", "labels", "ts", "value")

EXPRESSIONS = ("{}", "sum({})", "rate({}[5m])", "max_over_time({}[1h])", "count by (mode) ({})", "{} offset 10m")

READ = """
SELECT metric, labels, epoch_ms(ts) AS ts_ms, value FROM iceberg_scan(?)
WHERE (metric = ? OR ? = '') AND ts >= to_timestamp(?::DOUBLE / 1000) AND ts < to_timestamp(?::DOUBLE / 1000)
"""


class Deaths:
    """Stands for processes that end before or after a commit: of three calls one has each death, in a random order.
    Seeded; the threads of keepers share it."""

    def __init__(self, seed: int) -> None:
        self._generator = random.Random(seed)
        self._fates: list[str] = []
        self._lock = threading.Lock()
        self.before = self.after = 0

    def emit(self, *arguments: Any) -> Any:
        """The real one, with a death around some calls."""
        with self._lock:
            if not self._fates:
                self._fates = self._generator.sample(["before", "after", "alive"], 3)
            fate = self._fates.pop()
            self.before += fate == "before"
            self.after += fate == "after"
        if fate == "before":
            raise Unavailable("killed before the commit", reason="killed", retry_after_s=0.0)
        emitted = emit(*arguments)
        if fate == "after":
            raise Unavailable("killed after the commit", reason="killed", retry_after_s=0.0)
        return emitted


def dying_keepers(monkeypatch: pytest.MonkeyPatch, seed: int) -> Deaths:
    """Kill keepers around their commits until the end of the test."""
    deaths = Deaths(seed)
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
    way: Way,
    drill: HistoryDrill,
    over: QuerierNode,
    readers: Mapping[str, Reader],
    through_ms: int,
    rng: random.Random,
    *,
    reads: int,
) -> None:
    """Random reads, half of them of the days of late samples too, and one of all samples: the same by both queriers and
    by all readers."""
    names = sorted({metric_name(one).decode() for one in way.oracle.labels})
    first_ms, samples = way.oracle.min_ts_ms, 0
    chosen: list[tuple[str, int, int]] = []
    for number in range(reads):
        since_ms = first_ms if number % 2 else int(way.recording.ts_ms[0])
        start_ms, end_ms = sorted(rng.sample(range(since_ms, through_ms), 2))
        chosen.append((rng.choice(names), start_ms, end_ms))
    chosen.append(("", first_ms, through_ms))
    for name, start_ms, end_ms in chosen:
        selector = name or '{__name__=~".+"}'
        want = querier_answer(drill.querier, selector, start_ms, end_ms)
        assert querier_answer(over, selector, start_ms, end_ms) == want, f"{selector} in [{start_ms}, {end_ms})"
        for reader, read in readers.items():
            assert read(name, start_ms, end_ms) == want, f"{reader}, {selector} in [{start_ms}, {end_ms})"
        samples += sum(len(times) // 8 for times, _ in want.values())
    compare_promql(drill.querier, over, names, first_ms, through_ms, rng, expressions=reads // 8)
    everything = way.oracle.want(range(len(way.oracle.labels)), first_ms, through_ms)
    assert {one: bits.tobytes() for one, (_, bits) in everything.items()} == {
        one: values for one, (_, values) in want.items()
    }
    print(f"\n{len(chosen)} reads of {samples} samples, {len(everything)} series: the same by {', '.join(readers)}")


def compare_promql(
    one: QuerierNode,
    other: QuerierNode,
    names: Sequence[str],
    first_ms: int,
    end_ms: int,
    rng: random.Random,
    *,
    expressions: int,
) -> None:
    """Random expressions at random steps: the same bits from both histories."""
    for _ in range(expressions):
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


def by_duckdb(connection: duckdb.DuckDBPyConnection, table: Table) -> Reader:
    def read(name: str, start_ms: int, end_ms: int) -> Answer:
        asked = [table.metadata_location, name, name, start_ms, end_ms]
        found = connection.execute(READ, asked).arrow().read_all()
        return answer(found, found["ts_ms"].to_numpy())

    return read


def by_pyiceberg(table: Table) -> Reader:
    def read(name: str, start_ms: int, end_ms: int) -> Answer:
        within = f"ts >= '{_text(start_ms)}' and ts < '{_text(end_ms)}'"
        if name:
            within += f" and metric == '{name}'"
        found = table.scan(row_filter=within, selected_fields=COLUMNS).to_arrow()
        return answer(found, ts_ms_of(found))

    return read


def by_spark_iceberg(spark: SparkIceberg, table: Table) -> Reader:
    def read(name: str, start_ms: int, end_ms: int) -> Answer:
        within = f"ts >= TIMESTAMP '{_text(start_ms)}' AND ts < TIMESTAMP '{_text(end_ms)}'"
        if name:
            within += f" AND metric = '{name}'"
        found = spark.read(table.metadata_location, within, COLUMNS)
        return answer(found, ts_ms_of(found))

    return read


def by_data_source(spark: SparkSession, places: Places) -> Reader:
    """Spark over history by our own data source."""

    def read(name: str, start_ms: int, end_ms: int) -> Answer:
        asked = {"selector": name or '{__name__=~".+"}', "start_ms": str(start_ms), "end_ms": str(end_ms)}
        found = spark.read.format("tsdb").options(**places.options(), **asked).load().toArrow()
        return answer(found, ts_ms_of(found))

    return read


def ts_ms_of(found: pa.Table) -> NDArray[np.int64]:
    times: NDArray[np.int64] = found["ts"].cast(pa.int64()).to_numpy() // 1000
    return times


def _text(at_ms: int) -> str:
    return np.datetime_as_string(np.datetime64(at_ms, "ms"), timezone="UTC").replace("Z", "+00:00")


def answer(found: pa.Table, ts_ms: NDArray[np.int64]) -> Answer:
    """The rows by series, sorted by time. found: labels, value and, unless a label is the name, metric."""
    rows: dict[bytes, list[tuple[int, bytes]]] = {}
    named = "metric" in found.column_names
    names = [[("__name__", one)] for one in found["metric"].to_pylist()] if named else [[]] * len(found)
    for name, labels, ts, value in zip(
        names, found["labels"].to_pylist(), ts_ms.tolist(), found["value"].to_numpy(), strict=True
    ):
        pairs = labels.items() if isinstance(labels, dict) else labels
        rows.setdefault(canonical_labels([*name, *pairs]), []).append((ts, value.tobytes()))
    return {
        one: (np.array([ts for ts, _ in some], np.int64).tobytes(), b"".join(value for _, value in some))
        for one, some in ((one, sorted(some)) for one, some in rows.items())
    }
