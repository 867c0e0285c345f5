"""An import puts files into the past bit for bit, once however often it runs, and reports the refused rows."""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from spark_backfill import register
from spark_backfill.jobs.exports.job import ExportOptions, export
from spark_backfill.jobs.imports.job import ImportOptions, import_files
from spark_backfill.jobs.imports.local import LocalOptions, blocks_input, import_local
from spark_backfill.jobs.imports.raw_rows import raw_rows
from support.data.recordings import CLOUD_1M
from support.data.tables import NODE_5S
from support.data.tsdb_blocks import golden_chunks, write_block
from support.oracles.histogram_twin import Hist, Key, Sample, detailed_fragment
from support.servers.chunkers import chunker_options, running
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory, wait_until
from support.servers.node import Node
from support.servers.querier_node import QuerierNode
from support.spark.imports import ImportGround, SamplesByWindow
from tsdb.codec.chunk.chunk import decode_chunk
from tsdb.codec.histogram_rows import histogram_column, read_details
from tsdb.history.interface import Loaded
from tsdb.log.interface import METRICS
from tsdb.model.clock import SystemClock
from tsdb.model.details import same_details
from tsdb.model.errors import ConfigMismatch, InvalidRequest, Unavailable
from tsdb.model.histograms import CUSTOM_BOUNDS, GAUGE, RESET
from tsdb.model.import_layout import ImportLayout
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.time_set import PRODUCTION
from tsdb.model.window import window_start
from tsdb.query.history.index import Choice
from tsdb.selector.selectors import parse_selector

WAIT_S = 120.0
PAST_MS = 1_577_836_800_000  # 2020
ODD = (0x7FF0_0000_0000_0002, 0x7FF8_0000_0000_BEEF, 1 << 63, 0x7FF0_0000_0000_0000)
PARQUET = ImportLayout("parquet")


def past_node(folder: Path) -> tuple[str, SamplesByWindow]:
    """Writes some of the host's own metrics with times of 2020 to one file for each task. Returns the folder and the
    samples that history should have.
    """
    table = pq.read_table(NODE_5S)
    table = table.filter(pa.array(table["labels"].combine_chunks().indices.to_numpy() % 5 == 0))
    times = table["ts_ms"].to_numpy() + PAST_MS - int(table["ts_ms"].to_numpy().min())
    values = table["value"].to_numpy().copy()
    values.view("u8")[: len(ODD)] = ODD
    moved = pa.table({"labels": table["labels"], "ts_ms": times, "value": values})
    folder.mkdir()
    for number in range(8):
        pq.write_table(moved.slice(number * len(moved) // 8, len(moved) // 8 + 1), folder / f"{number}.parquet")
    return str(folder), held_of(table["labels"].to_pylist(), times, values)


def held_of(labels: Sequence[str], ts_ms: NDArray[np.int64], values: NDArray[np.float64]) -> SamplesByWindow:
    held: dict[tuple[int, int], dict[int, int]] = {}
    ids = {text: series_id(canonical_labels(json.loads(text))) for text in set(labels)}
    for text, at, bits in zip(labels, ts_ms.tolist(), values.view("u8").tolist(), strict=True):
        held.setdefault((ids[text], window_start(at, PRODUCTION.window_ms)), {})[at] = bits
    return {place: sorted(samples.items()) for place, samples in held.items()}


def test_histograms_come_back_from_an_export_bit_for_bit(
    spark: SparkSession, ground: ImportGround, tmp_path: Path
) -> None:
    """Counters, gauges, custom bounds, stale markers, floats and start timestamps, imported and exported."""
    labels = {number: {"__name__": "h", "n": str(number)} for number in range(3)}
    samples: dict[Key, Sample] = {}
    for at in range(300):
        ts_ms = PAST_MS + 15_000 * at
        samples[0, ts_ms] = Hist(3, {-4: float(at), at % 9: 2.0}, 1.0, 0.1 * at, RESET if at == 9 else 0, PAST_MS - 5)
        samples[1, ts_ms] = Hist(CUSTOM_BOUNDS, {at % 3: float(at)}, 0.0, 7.0, bounds=(0.5, 2.5), hint=GAUGE)
        samples[2, ts_ms] = Hist(is_stale=True) if at % 50 == 7 else float(at) if at % 3 else Hist(0, {1: 1.0})
    fragment = detailed_fragment(samples)
    texts = [json.dumps(labels[series]) for series, _ in sorted(samples)]
    has_histogram = np.array([isinstance(samples[key], Hist) for key in sorted(samples)])
    details = fragment.details
    assert details is not None
    assert details.start_ms is not None
    table = pa.table(
        {
            "labels": texts,
            "ts_ms": fragment.ts_ms,
            "value": pa.array(fragment.value, mask=has_histogram, from_pandas=False),
            "histogram": histogram_column(details, len(texts)),
            "start_ms": pa.array(details.start_ms, mask=details.start_ms == 0),
        }
    )
    (tmp_path / "in").mkdir()
    for number in range(3):
        pq.write_table(table.slice(number * 300, 300), tmp_path / "in" / f"{number}.parquet")
    options = ImportOptions("histograms", wait_s=WAIT_S)
    done = import_files(spark, [f"{tmp_path}/in"], PARQUET, ground.places, ground.shared, options)
    assert (done.ok, done.samples) == (True, 900)
    out = f"{tmp_path}/out"
    assert export(spark, ground.places, ExportOptions(out, partial=True)).samples == 900
    back = pq.read_table(out).drop_columns("day").sort_by([("labels", "ascending"), ("ts_ms", "ascending")])
    found = read_details(back["histogram"], pc.multiply(pc.fill_null(back["start_ms"], 0), 1000))
    assert same_details(found, details)
    assert list(map(json.loads, back["labels"].to_pylist())) == list(map(json.loads, texts))
    assert back["ts_ms"].to_pylist() == table["ts_ms"].to_pylist()
    bits = [pc.fill_null(one["value"], 0.0).to_numpy().view("u8").tolist() for one in (table, back)]
    assert bits[0] == bits[1]


# tests/spark/test_outages.py imports on servers in each run.
def test_an_import_equals_its_files_and_a_second_one_changes_nothing(
    spark: SparkSession, ground: ImportGround, tmp_path: Path
) -> None:
    path, expected = past_node(tmp_path / "in")
    # Few series for each task, so that packs are split.
    options = ImportOptions("once", wait_s=WAIT_S, series_per_range=4)
    done = import_files(spark, [path], PARQUET, ground.places, ground.shared, options)
    assert done.ok, done
    assert ground.held() == expected
    rows = ground.rows()
    assert max(key.part for key in rows) >= 1 << 20, "no pack was split"
    again = import_files(spark, [path], PARQUET, ground.places, ground.shared, options)
    assert again.samples == done.samples
    assert ground.rows() == rows
    # History is lost and loaded again from the log.
    ground.lose_history()
    wait_until(lambda: ground.rows() == rows, WAIT_S)


def test_a_querier_finds_imported_samples(spark: SparkSession, embedded: ImportGround, tmp_path: Path) -> None:
    if CLOUD_1M.exists():
        path, (labels, ts_ms, values) = str(CLOUD_1M), columns_of(CLOUD_1M)
    else:
        path, _ = past_node(tmp_path / "in")
        labels, ts_ms, values = columns_of(Path(path))
    options = ImportOptions("cloud", wait_s=WAIT_S)
    import_files(spark, [path], PARQUET, embedded.places, embedded.shared, options)
    chunking = running(embedded.log, chunker_options(PRODUCTION), SystemClock())
    node, topic_id = Node(embedded.log), embedded.log.topic_id(METRICS)
    with chunking, node.wait_ready_on_entry():
        wait_until(lambda: len(embedded.history.loaded(topic_id)) == embedded.shared.partitions, WAIT_S)
        querier = QuerierNode([node.address], embedded.history, topic_id=topic_id, partitions=3)
        with querier:
            for text in sorted(set(labels.tolist())):
                mine = labels == text
                pairs = ",".join(f"{name}={json.dumps(value)}" for name, value in json.loads(text).items())
                found = querier.client.select("{" + pairs + "}", int(ts_ms.min()), int(ts_ms.max()) + 1)
                ((times, bits),) = [(at, value.view("u8")) for one, at, value in found if one == json.loads(text)]
                given = np.stack([ts_ms[mine], values[mine].view("i8")])
                # Of rows with one time the value with the highest bits wins.
                given = given[:, np.lexsort((given[1].view("u8"), given[0]))]
                stands = np.append(given[0, 1:] != given[0, :-1], True)
                assert np.array_equal(times, given[0, stands])
                assert np.array_equal(bits, given[1, stands].view("u8"))


def columns_of(path: Path) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.float64]]:
    table = pq.read_table(path)
    return (
        np.array(table["labels"].cast(pa.string()).to_pylist(), object),
        table["ts_ms"].to_numpy(),
        table["value"].to_numpy(),
    )


UP = {"__name__": "up", "job": "j"}


def line(labels: object = UP, ts_ms: object = PAST_MS, value: object = "1") -> str:
    return json.dumps({"labels": labels, "ts_ms": ts_ms, "value": value})


def test_a_row_that_is_no_sample_is_refused_with_its_reason(
    spark: SparkSession, embedded: ImportGround, tmp_path: Path
) -> None:
    now_ms = SystemClock().now_ms()
    lines = {
        "good": [
            line(),
            line(value="-Inf", ts_ms=PAST_MS + 1),
            line(value="NaN", ts_ms=PAST_MS + 2),
            line(),
            line(value="2"),
        ],
        "no_metric_name": [line({"job": "j"})],
        "labels_reserved": [line({"__name__": "up", "__resolution__": "y"})],
        "null_timestamp": [line(ts_ms=None)],
        "bad_timestamp": [line(ts_ms="soon"), line(ts_ms="1.5")],
        "timestamp_out_of_range": [line(ts_ms=str(1 << 62))],
        "null_value": [line(value=None)],
        "bad_value": [line(value="1d"), line(value="0x1")],
        "value_too_large": [line(value="1e999")],
        "bad_line": ["{"],
        "too_recent": [line(ts_ms=now_ms), line(ts_ms=now_ms - PRODUCTION.least_hold_ms)],
    }
    file, rejects = tmp_path / "rows.jsonl", tmp_path / "rejects"
    file.write_text("\n".join(each for group in lines.values() for each in group))
    options = ImportOptions("bad", rejects=str(rejects), wait_s=WAIT_S)
    done = import_files(spark, [str(file)], ImportLayout("jsonl"), embedded.places, embedded.shared, options)
    expected = {reason: len(group) for reason, group in lines.items() if reason != "good"}
    assert not done.ok
    assert {row.reason: row.rows for row in done.rows} == expected
    written = [json.loads(text)["reason"] for part in rejects.glob("part-*") for text in part.read_text().splitlines()]
    assert Counter(written) == expected
    assert (done.samples, done.duplicates, done.conflicts) == (3, 1, 1)
    ((_, samples),) = embedded.held().items()
    two, nan = struct.unpack("<Q", struct.pack("<d", 2.0))[0], 0x7FF8_0000_0000_0000
    assert samples == [(PAST_MS, two), (PAST_MS + 1, 0xFFF0_0000_0000_0000), (PAST_MS + 2, nan)]


def times_of(spark: SparkSession, paths: Sequence[Path], layout: ImportLayout) -> list[tuple[int, str | None]]:
    """Time and reason of refusal of each row, as an import reads files."""
    rows = raw_rows(spark.newSession(), [str(path) for path in paths], layout).collect()
    return [(row["ts_ms"], row["problem"]) for row in rows]


@pytest.mark.parametrize("round_times", [False, True])
def test_a_time_finer_than_a_millisecond_is_refused_or_rounded_down(
    spark: SparkSession, tmp_path: Path, round_times: bool
) -> None:
    labels, base = json.dumps(UP), PAST_MS
    text = f"{datetime.fromtimestamp(base / 1000, UTC):%Y-%m-%dT%H:%M:%S}"
    files = {
        "ns": (pa.array([base * 1_000_000, base * 1_000_000 + 1], pa.timestamp("ns")), "ns"),
        "us": (pa.array([(base + 1) * 1_000, (base + 1) * 1_000 + 999], pa.timestamp("us", "UTC")), "ms"),
        "numbers": (pa.array([(base + 2) * 1_000, (base + 2) * 1_000 + 1]), "us"),
        "seconds": (pa.array([f"{base // 1000}.003", f"{base // 1000}.0031"]), "s"),
        "text": (pa.array([f"{text}.004Z", f"{text}.0040000005Z"]), "iso"),
    }
    for at, (name, (times, unit)) in enumerate(files.items()):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(pa.table({"labels": [labels] * 2, "ts_ms": times, "value": [1.0, 1.0]}), path)
        (exact, none), (rounded, problem) = times_of(
            spark, [path], ImportLayout("parquet", time_unit=unit, round_times=round_times)
        )
        assert (exact, none) == (base + at, None), name
        assert (rounded, problem) == (base + at, None if round_times else "fine_timestamp"), name


@pytest.mark.parametrize("unit", ["ms", "ns"])
def test_parquet_times_in_ns_need_no_unit(spark: SparkSession, tmp_path: Path, unit: str) -> None:
    """As pandas writes them. The unit of the layout is that of numbers."""
    times = pa.array(
        [PAST_MS * 1_000_000, (PAST_MS + 1) * 1_000_000, (PAST_MS + 2) * 1_000_000 + 1], pa.timestamp("ns")
    )
    other = pa.array([0, 0, 0], pa.timestamp("ns"))
    rows = {"labels": [json.dumps(UP)] * 3, "ts_ms": times, "value": [1.0, 2.0, 3.0], "other": other}
    path = tmp_path / "ns.parquet"
    pq.write_table(pa.table(rows), path)
    found = times_of(spark, [path], ImportLayout("parquet", time_unit=unit))
    assert found == [(PAST_MS, None), (PAST_MS + 1, None), (PAST_MS + 2, "fine_timestamp")]


def test_numbers_beside_a_column_of_times_in_ns_keep_their_unit(spark: SparkSession, tmp_path: Path) -> None:
    rows = {"labels": [json.dumps(UP)], "ts_ms": [PAST_MS], "value": [1.0], "other": pa.array([0], pa.timestamp("ns"))}
    path = tmp_path / "ms.parquet"
    pq.write_table(pa.table(rows), path)
    assert times_of(spark, [path], ImportLayout("parquet")) == [(PAST_MS, None)]


def test_files_with_and_without_times_in_ns_are_refused(
    spark: SparkSession, embedded: ImportGround, tmp_path: Path
) -> None:
    def files_of(**kinds: pa.Array) -> list[Path]:
        for name, times in kinds.items():
            table = pa.table({"labels": [json.dumps(UP)], "ts_ms": times, "value": [1.0]})
            pq.write_table(table, tmp_path / f"{name}.parquet")
        return [tmp_path / f"{name}.parquet" for name in kinds]

    nanos, numbers = pa.array([PAST_MS * 1_000_000], pa.timestamp("ns")), pa.array([PAST_MS])
    files = [str(file) for file in files_of(a=nanos, b=numbers)]
    options = ImportOptions("mixed", wait_s=WAIT_S)
    with pytest.raises(InvalidRequest, match=r"in ns in .*a\.parquet and none in .*b\.parquet") as refused:
        import_files(spark, files, ImportLayout("parquet"), embedded.places, embedded.shared, options)
    assert refused.value.reason == "bad_layout"
    # The times of b are read as numbers of ms.
    found = times_of(spark, files_of(a=numbers, b=nanos), ImportLayout("parquet"))
    assert sorted(found) == [(PAST_MS, None), (PAST_MS * 1_000_000, None)]


def test_files_of_other_layouts_mean_the_same(spark: SparkSession, embedded: ImportGround, tmp_path: Path) -> None:
    samples = [(PAST_MS + 1000 * n, n / 4) for n in range(300)]
    rows = [(ts_ms / 1000, "i0", value) for ts_ms, value in samples]
    wide = tmp_path / "wide.csv"
    wide.write_text("at,host,cpu,mem\n" + "".join(f"{at:.3f},{host},{value},\n" for at, host, value in rows))
    layout = ImportLayout("csv", "", (("instance", "host"),), (("job", "j"),), "at", "s", metrics=("cpu", "mem"))
    options = ImportOptions("wide", wait_s=WAIT_S)
    done = import_files(spark, [str(wide)], layout, embedded.places, embedded.shared, options)
    assert (done.ok, done.samples) == (True, 300)
    labels = {"__name__": "cpu", "instance": "i0", "job": "j"}
    held = held_of([json.dumps(labels)] * 300, *map(np.array, zip(*samples, strict=True)))
    assert embedded.held() == held
    # The same as a block of Prometheus, under another order: every sample is there twice, and reads find it once.
    write_block(tmp_path / "data" / "01A", [(labels, samples)])
    block = ImportOptions("block", wait_s=WAIT_S)
    import_files(spark, [str(tmp_path / "data")], ImportLayout("prometheus"), embedded.places, embedded.shared, block)
    assert embedded.held() == held
    assert len({key.order for key in embedded.rows()}) == 2


def test_an_import_without_spark_writes_the_rows_of_the_one_on_spark(
    spark: SparkSession, embedded: ImportGround, tmp_path: Path
) -> None:
    hosts = [f"i{n}" for n in range(5)]
    series = [
        (
            {"__name__": "cpu", "job": "j", "instance": host, "core": str(core)},
            [(PAST_MS + 250_000 * n, n / 8) for n in range(400)],
        )
        for host in hosts
        for core in range(6)
    ]
    native = golden_chunks()
    chunks = {len(series) + at: one.chunk for at, one in enumerate(native)}
    series += [({"__name__": "h", "job": "j", "instance": one.kind}, one.floats) for one in native]
    path = str(write_block(tmp_path / "data" / "01A", series, histograms=chunks))
    options = ImportOptions("on-spark", wait_s=WAIT_S, series_per_range=4)
    done = import_files(spark, [path], ImportLayout("prometheus"), embedded.places, embedded.shared, options)
    found = embedded.rows()
    logs, histories = (
        LogFactory(f"sqlite:///{tmp_path}/two.db", ""),
        HistoryFactory(f"sqlite:///{tmp_path}/two.past.db"),
    )
    with logs, histories, ImportGround(logs, histories) as ground:
        alone = LocalOptions("alone", wait_s=WAIT_S, step_samples=1_000, series_per_range=4)
        result = import_local(blocks_input([path]), ground.places, ground.shared, alone)
        assert ground.rows() == found
        details = [fragment.details for fragment in map(decode_chunk, found.values())]
        counts = [len(one.histograms) for one in details if one is not None and one.histograms is not None]
        assert sum(counts) == sum(len(one.samples) for one in native)
    figures = {**done.figures(), "job_id": "", "end_ms": 0}
    assert figures.items() <= {**result.figures(), "job_id": "", "end_ms": 0}.items()


def test_an_impossible_import_is_refused_before_anything_is_written(
    spark: SparkSession, embedded: ImportGround, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    file.write_text('labels,ts_ms,value\n"{}",1,2\n')

    def run(layout: ImportLayout, job_id: str = "named", **options: Any) -> None:
        import_files(spark, [str(file)], layout, embedded.places, embedded.shared, ImportOptions(job_id, **options))

    with pytest.raises(InvalidRequest, match="the files have no column when; they have labels, ts_ms, value"):
        run(ImportLayout("csv", time="when"))
    with pytest.raises(InvalidRequest, match="no row of the files is a sample; refused: 1 no_metric_name"):
        run(ImportLayout("csv"))
    assert all(mark.high == 0 for mark in embedded.log.watermarks(METRICS, range(3)).values())
    file.write_text(line())
    run(ImportLayout("jsonl"), wait_s=WAIT_S)
    file.write_text(line(value="3"))
    with pytest.raises(ConfigMismatch, match="began with other files"):
        run(ImportLayout("jsonl"))


@pytest.mark.parametrize("way", ["files", "frame"])
def test_a_range_queried_before_an_import_has_its_series_when_the_job_ends(
    spark: SparkSession, embedded: ImportGround, tmp_path: Path, way: str
) -> None:
    index, choice, wanted = embedded.kept_index(), Choice(parse_selector("up")), range(embedded.shared.partitions)
    loaded = {partition: Loaded("topic", partition, 100, PAST_MS) for partition in wanted}

    def labels() -> list[bytes]:
        found = index.find(choice, PAST_MS, PAST_MS + 1, loaded, dict.fromkeys(wanted, 0))
        return [canonical for series in found.values() for canonical in series.labels]

    assert labels() == []
    file = tmp_path / "rows.jsonl"
    file.write_text(line())
    if way == "files":
        options = ImportOptions("alone", wait_s=WAIT_S)
        import_files(spark, [str(file)], ImportLayout("jsonl"), embedded.places, embedded.shared, options)
    else:
        register(spark)
        frame = spark.sql(f"SELECT map('__name__', 'up', 'job', 'j') labels, timestamp_millis({PAST_MS}) ts, 1D value")
        frame.write.format("tsdb").options(**embedded.places.options(), job_id="alone").mode("append").save()
    assert labels() == [canonical_labels(UP)]


def test_without_a_loader_the_job_reports_its_progress(
    spark: SparkSession, embedded: ImportGround, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(line())
    options = ImportOptions("alone", wait_s=0.1)
    said = "everything is in the log, but within 0.1 s the loader"
    with embedded.no_loader(), pytest.raises(Unavailable, match=re.escape(said)):
        import_files(spark, [str(file)], ImportLayout("jsonl"), embedded.places, embedded.shared, options)
