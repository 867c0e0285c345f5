"""Reads of history and log: whole across the seam, each sample once with the version that counts, or refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, In, Not, StringStartsWith
from pyspark.sql.pandas.types import to_arrow_schema

from spark_backfill.places import Places
from spark_backfill.source.columns import sample_schema
from spark_backfill.worker_log import close_worker_log
from support.data.heads import canonical_of, id_of
from support.data.late_writer import series_of
from support.data.log_records import encode_packs
from support.oracles.record_twin import Pack
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory
from support.spark.loaded_history import BEGIN_MS, EVERY_MS, WINDOW_MS, LoadedHistory
from support.spark.sample_streams import source
from tsdb.history.rows import signed
from tsdb.log.interface import METRICS
from tsdb.model.errors import HoleInRange, InvalidRequest, OutOfCoverage, TsdbError, Unavailable
from tsdb.model.labels import parse_labels

HOUR = 3_600_000 // EVERY_MS  # Records of an hour.
KINDS: dict[str, dict[str, object]] = {
    "both": {},
    "history": {"end_ms": BEGIN_MS + WINDOW_MS, "partial": "true"},
    "log": {"source": "log"},
}
Rows = list[tuple[int, int, int]]
"""(series id, ts_ms, bits of the value) of each row, ascending."""


@pytest.fixture
def ground(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[LoadedHistory]:
    with _ground(tmp_path, getattr(request, "param", 1)) as made:
        yield made


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoadedHistory]:
    """Six hours, the first window of them in history. Tests only read it."""
    with _ground(tmp_path_factory.mktemp("loaded"), 1) as made:
        made.write(6 * HOUR)
        made.load(BEGIN_MS + WINDOW_MS, 6 * HOUR)
        yield made


@contextmanager
def _ground(folder: Path, seed: int) -> Iterator[LoadedHistory]:
    logs, histories = LogFactory(f"sqlite:///{folder}/log.db", ""), HistoryFactory(f"sqlite:///{folder}/history.db")
    with logs, histories, LoadedHistory(logs, histories, seed) as made:
        yield made
    close_worker_log()


def table_of(places: Places, **options: object) -> pa.Table:
    made = source(places, **options)
    reader = made.reader(made.schema())
    return pa.Table.from_batches([batch for part in reader.partitions() for batch in reader.read(part)])


def rows(places: Places, **options: object) -> Rows:
    return rows_of(table_of(places, **options))


def rows_of(table: pa.Table) -> Rows:
    ids = table["series_id"].to_numpy().view(np.uint64).tolist()
    ts_ms = (table["ts"].cast(pa.int64()).to_numpy() // 1000).tolist()
    bits = table["value"].combine_chunks().to_numpy(zero_copy_only=False).view("u8").tolist()
    return sorted(zip(ids, ts_ms, bits, strict=True))


def labels_of(number: int) -> dict[str, str]:
    return dict(parse_labels(canonical_of(number)))


def alone(places: Places) -> Places:
    """History without the log."""
    return Places(history=places.history)


def refusal(places: Places, **options: object) -> TsdbError:
    with pytest.raises(TsdbError) as refused:
        rows(places, **options)
    return refused.value


@pytest.mark.slow
@pytest.mark.parametrize(
    "ground", [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (2, 3))], indirect=True
)
@pytest.mark.parametrize(
    ("windows", "position", "more"),
    [(2, 10 * HOUR, 0.0), (2, 9 * HOUR, 0.3), (1, 10 * HOUR, 0.3), (0, 0, 0.0), (0, 0, 0.2), (2, 11 * HOUR, 1.0)],
)
def test_history_and_log_give_each_sample_once_across_the_seam(
    ground: LoadedHistory, windows: int, position: int, more: float
) -> None:
    ground.write(11 * HOUR)
    ground.load(BEGIN_MS + windows * WINDOW_MS, position, more=more, apart=True)
    assert rows(ground.places) == ground.newest
    start_ms, end_ms = BEGIN_MS + WINDOW_MS // 2, BEGIN_MS + 5 * WINDOW_MS // 2
    found = rows(ground.places, start_ms=start_ms, end_ms=end_ms, splits=64)
    assert found == [row for row in ground.newest if start_ms <= row[1] < end_ms]
    chosen = rows(ground.places, selector='m_1{instance="i1"}')
    assert chosen == [row for row in ground.newest if row[0] == id_of(4)]
    assert chosen


@pytest.mark.parametrize("ground", range(2), indirect=True)
@pytest.mark.parametrize("more", [0.0, 0.5])
def test_a_chunk_stage_that_is_days_behind_makes_no_read_short(ground: LoadedHistory, more: float) -> None:
    """Imports may have brought what is older than a day and the hold, so these samples come from both."""
    ground.write(7 * HOUR)
    ground.load(BEGIN_MS + WINDOW_MS, 6 * HOUR)
    ground.pause(48)
    ground.write(HOUR)
    ground.load(BEGIN_MS + WINDOW_MS, 6 * HOUR, more=more)
    assert rows(ground.places) == ground.newest


def test_nothing_loaded_yet_is_read_from_the_log(ground: LoadedHistory) -> None:
    ground.write(HOUR)
    assert rows(ground.places) == ground.newest


def test_an_import_beats_older_samples_of_the_log_and_loses_to_newer_ones(ground: LoadedHistory) -> None:
    """Without a chunk stage history has imports alone; their order is the offset of their tick."""
    ground.write(HOUR)
    key = next(key for key, found in ground.versions.items() if len(found) == 1)
    ground.load(BEGIN_MS, 0, more=1.0)
    ground.append(ground.versions[key][0][2], encode_packs([Pack(ground.pack_of(key[0]), ((*key, 5),))]))
    assert rows(ground.places) == ground.newest


@pytest.mark.parametrize(
    ("options", "through"),
    [({}, "without an end"), ({"end_ms": BEGIN_MS + 2 * WINDOW_MS + 1}, f"up to {BEGIN_MS + 2 * WINDOW_MS + 1} ms")],
)
def test_history_alone_refuses_a_range_that_it_does_not_hold(
    ground: LoadedHistory, options: dict[str, object], through: str
) -> None:
    ground.write(11 * HOUR)
    ground.load(BEGIN_MS + 2 * WINDOW_MS, 10 * HOUR)
    error = refusal(alone(ground.places), **options)
    assert isinstance(error, Unavailable)
    assert error.reason == "history_behind"
    assert f"requested {through}: it is whole before {BEGIN_MS + 2 * WINDOW_MS} ms" in error.message
    for step in ("end_ms", "the option log", "partial=true"):
        assert step in error.message


def test_history_alone_answers_what_is_loaded_and_with_partial_what_there_is(ground: LoadedHistory) -> None:
    ground.write(11 * HOUR)
    ground.load(BEGIN_MS + 2 * WINDOW_MS, ground.log.watermarks(METRICS, [0])[0].high)
    inside = [row for row in ground.newest if row[1] < BEGIN_MS + 2 * WINDOW_MS]
    assert rows(alone(ground.places), end_ms=BEGIN_MS + 2 * WINDOW_MS) == inside
    assert rows(alone(ground.places), partial="true") == inside
    assert rows(ground.places, partial="true") == inside


def test_history_without_loaded_is_refused_and_names_the_partition(ground: LoadedHistory) -> None:
    assert "nothing is loaded of partition 0" in refusal(alone(ground.places), end_ms=BEGIN_MS).message


def test_runs_are_of_history_alone(ground: LoadedHistory) -> None:
    ground.write(11 * HOUR)
    ground.load(BEGIN_MS + 2 * WINDOW_MS, 10 * HOUR)
    assert "read samples in place of runs" in refusal(ground.places, rows="runs").message
    assert table_of(ground.places, rows="runs", end_ms=BEGIN_MS + WINDOW_MS).num_rows > 0


def test_a_log_trimmed_above_what_is_loaded_is_refused(ground: LoadedHistory) -> None:
    ground.write(11 * HOUR)
    ground.load(BEGIN_MS + 2 * WINDOW_MS, 2 * HOUR)
    ground.logs.topics().trim(METRICS, {0: 3 * HOUR})
    error = refusal(ground.places)
    assert isinstance(error, OutOfCoverage)
    assert f"partition 0: history holds what is below record {2 * HOUR}" in error.message
    assert rows(ground.places, allow_holes="true")


def test_a_corrupt_record_beyond_what_is_loaded_is_an_error(ground: LoadedHistory) -> None:
    ground.write(5 * HOUR)
    ground.load(BEGIN_MS + WINDOW_MS, 5 * HOUR)
    ground.log.append_sync(METRICS, 1, b"\x00broken", timestamp_ms=ground.end_ms)
    assert isinstance(refusal(ground.places), HoleInRange)
    assert rows(ground.places, allow_holes="true") == ground.newest


@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ([EqualTo(("__name__",), "m_1")], lambda labels: labels["__name__"] == "m_1"),
        ([In(("instance",), ("i1", "i2"))], lambda labels: labels["instance"] in ("i1", "i2")),
        ([StringStartsWith(("__name__",), "m_")], lambda _: True),
        ([Not(EqualTo(("instance",), "i1"))], lambda labels: labels["instance"] != "i1"),
        ([EqualTo(("series_id",), signed(id_of(4)))], lambda labels: labels == labels_of(4)),
        ([In(("series_id",), (signed(id_of(4)), 5))], lambda labels: labels == labels_of(4)),
    ],
)
@pytest.mark.parametrize("kind", ["both", "history", "log"])
def test_a_pushed_condition_reads_only_the_rows_that_satisfy_it(
    loaded: LoadedHistory, kind: str, filters: list[Filter], wanted: Callable[[dict[str, str]], bool]
) -> None:
    made = source(loaded.places, wide="__name__,instance", **KINDS[kind])
    reader = made.reader(made.schema())
    assert list(reader.pushFilters(filters)) == []
    table = pa.Table.from_batches(
        [batch for part in reader.partitions() for batch in reader.read(part)],
        schema=to_arrow_schema(made.schema(), timezone="UTC"),
    )
    numbers = range(3 * len(series_of(0)))
    ids = {id_of(number) for number in numbers if wanted(labels_of(number))}
    end_ms = BEGIN_MS + WINDOW_MS if kind == "history" else 1 << 50
    assert rows_of(table) == [row for row in loaded.newest if row[0] in ids and row[1] < end_ms]


@pytest.mark.parametrize("kind", ["both", "history", "log"])
def test_the_map_of_labels_may_stand_beside_columns_of_labels(ground: LoadedHistory, kind: str) -> None:
    ground.write(6 * HOUR)
    ground.load(BEGIN_MS + WINDOW_MS, 6 * HOUR)
    made = source(ground.places, wide="labels,instance", **KINDS[kind])
    reader = made.reader(made.schema())
    assert list(reader.pushFilters([EqualTo(("instance",), "i1")])) == []
    table = pa.Table.from_batches([batch for part in reader.partitions() for batch in reader.read(part)])
    assert table.num_rows
    assert set(table["instance"].to_pylist()) == {"i1"}
    distinct = {tuple(each) for each in table["labels"].to_pylist()}
    assert distinct == {parse_labels(canonical_of(number)) for number in numbers_of("i1")}


def numbers_of(instance: str) -> list[int]:
    """The series of an instance."""
    return [number for number in range(3 * len(series_of(0))) if labels_of(number)["instance"] == instance]


# The source log.


def test_the_log_gives_the_version_that_counts_with_its_place(ground: LoadedHistory) -> None:
    ground.write(3 * HOUR)
    assert any(len(found) > 1 for found in ground.versions.values())
    for splits in (1, 64):
        table = table_of(ground.places, source="log", splits=splits)
        assert rows_of(table) == ground.newest
        for row in table.select(["series_id", "ts", "partition", "offset", "order", "broker_time"]).to_pylist():
            key = row["series_id"] % (1 << 64), int(row["ts"].timestamp() * 1000 + 0.5)
            (offset, index), _, partition = max(ground.versions[key])
            assert (row["partition"], row["offset"], row["order"]) == (partition, offset, (offset << 20) + index)
            assert row["broker_time"].timestamp() * 1000 == BEGIN_MS + (offset + 1) * EVERY_MS


def test_all_versions_are_ranked_by_their_order(ground: LoadedHistory) -> None:
    ground.write(3 * HOUR)
    table = table_of(ground.places, source="log", versions="all")
    assert table.num_rows == sum(map(len, ground.versions.values()))
    frame = table.to_pandas().sort_values("order").groupby(["series_id", "ts"])["value"].last().reset_index()
    assert rows_of(pa.Table.from_pandas(frame.astype({"ts": "datetime64[us, UTC]"}))) == ground.newest


def test_a_text_column_with_the_name_of_a_place_is_a_label(ground: LoadedHistory) -> None:
    wide = sample_schema(("partition", "job"), versions=True)
    assert wide["partition"].dataType.simpleString() == "string"
    assert [name for name in wide.names if name in ("order", "offset", "broker_time")] == [
        "order",
        "offset",
        "broker_time",
    ]
    ground.write(2)
    table = table_of(ground.places, source="log", wide="partition,job")
    assert set(table["partition"].to_pylist()) == {None}
    assert set(table["job"].to_pylist()) == {"test"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"source": "history", "versions": "all"}, "option versions is of the source log; the source is history"),
        ({"source": "log", "partial": "true"}, "option partial is of the source history; the source is log"),
        ({"source": "log", "versions": "some"}, "option versions is 'some'; want newest or all"),
        ({"partial": "yes"}, "option partial is 'yes'; want true or false"),
    ],
)
def test_an_option_of_another_source_is_named(ground: LoadedHistory, options: dict[str, object], text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        rows(ground.places, **options)
    assert text in refused.value.message


def test_history_has_no_columns_of_versions(ground: LoadedHistory) -> None:
    with pytest.raises(InvalidRequest, match="column order is of the source log alone"):
        source(ground.places).reader(sample_schema(versions=True))
