"""An import without Spark writes every sample of its blocks once, bit for bit, or names what it does not write."""

from __future__ import annotations

import json
import random
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest

from spark_backfill.jobs.imports.local import (
    ImportInput,
    LocalImportResult,
    LocalOptions,
    RowsInMemory,
    blocks_input,
    import_local,
)
from support.data.tsdb_blocks import UNKNOWN_SCHEMA, Labels, Sample, bits_of, write_block
from support.servers.histories import HistoryFactory
from support.servers.logs import LogFactory
from support.spark.imports import ImportGround, SamplesByWindow
from tsdb.log.interface import CHUNKS, METRICS
from tsdb.model.clock import SystemClock
from tsdb.model.errors import ConfigMismatch, CorruptData, InvalidRequest, Overloaded, TsdbError, UnknownVersion
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.time_set import PRODUCTION
from tsdb.model.window import window_start

PAST_MS = 1_577_836_800_000  # 2020
HOUR_MS = 3_600_000
STALE = struct.unpack(">d", struct.pack(">Q", 0x7FF0_0000_0000_0002))[0]
WAIT_S = 120.0
Series = list[tuple[Labels, list[Sample]]]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[ImportGround]:
    """An embedded log and history with a loader."""
    logs, histories = LogFactory(f"sqlite:///{tmp_path}/log.db", ""), HistoryFactory(f"sqlite:///{tmp_path}/history.db")
    with logs, histories, ImportGround(logs, histories) as made:
        yield made


def labels(name: str, instance: str = "a", **more: str) -> Labels:
    return {"__name__": name, "job": "j", "instance": instance, **more}


def samples(count: int, start_ms: int = PAST_MS, step_ms: int = 60_000, first: float = 0.0) -> list[Sample]:
    return [(start_ms + n * step_ms, first + n / 8) for n in range(count)]


def held(series: Series) -> SamplesByWindow:
    found: SamplesByWindow = {}
    for one, of in series:
        for ts_ms, value in of:
            place = series_id(canonical_labels(dict(one))), window_start(ts_ms, PRODUCTION.window_ms)
            found.setdefault(place, []).append((ts_ms, bits_of(value)))
    return {place: sorted(set(rows)) for place, rows in found.items()}


HOSTS: Series = [
    (labels("cpu", instance, core=str(core)), samples(700, first=core))
    for instance in ("a", "b", "é")
    for core in range(4)
] + [(labels("odd"), [(PAST_MS, STALE), (PAST_MS + 1, -0.0), (PAST_MS + 40 * 24 * HOUR_MS, float("inf"))])]


def run(ground: ImportGround, *paths: Path, **options: object) -> LocalImportResult:
    chosen = LocalOptions(**{"wait_s": WAIT_S, **options})  # type: ignore[arg-type]
    return import_local(blocks_input([str(path) for path in paths]), ground.places, ground.shared, chosen)


def appended(ground: ImportGround, topic: str) -> int:
    return sum(mark.high for mark in ground.log.watermarks(topic, range(ground.shared.partitions)).values())


def test_an_import_equals_its_blocks_and_the_same_command_again_writes_nothing(
    ground: ImportGround, tmp_path: Path
) -> None:
    write_block(tmp_path / "data" / "01A", HOSTS)
    done = run(ground, tmp_path / "data")
    assert ground.held() == held(HOSTS)
    total = sum(len(of) for _, of in HOSTS)
    assert (done.ok, done.samples, done.rows_valid, done.inputs, done.loaded) == (True, total, total, 1, True)
    rows, records = ground.rows(), appended(ground, CHUNKS)
    again = run(ground, tmp_path / "data")
    assert (again.steps_before, again.samples, again.job_id) == (again.steps, total, done.job_id)
    assert (ground.rows(), appended(ground, CHUNKS)) == (rows, records)


def test_small_steps_and_split_packs_write_the_same_samples(ground: ImportGround, tmp_path: Path) -> None:
    write_block(tmp_path / "01A", HOSTS)
    done = run(ground, tmp_path / "01A", step_samples=300, series_per_range=2)
    assert done.steps > 20
    assert max(key.part for key in ground.rows()) >= 1 << 20, "no pack was split"
    assert ground.held() == held(HOSTS)


class Ended(Exception):
    """Ends an import from outside."""


def ending(
    after: int,
) -> Callable[[str, str], AbstractContextManager[tuple[Callable[[int], None], Callable[[int], None]]]]:
    """A progress that ends the import at this call of the writing phase."""

    @contextmanager
    def progress(phase: str, unit: str) -> Iterator[tuple[Callable[[int], None], Callable[[int], None]]]:
        left = after

        def advance(done: int) -> None:
            nonlocal left
            left -= phase == "written"
            if left < 0:
                raise Ended

        yield advance, lambda more: None

    return progress


def test_an_ended_import_goes_on_with_the_same_command_and_its_counts_are_those_of_one_run(
    ground: ImportGround, tmp_path: Path
) -> None:
    write_block(tmp_path / "01A", HOSTS)
    options = LocalOptions(wait_s=WAIT_S, step_samples=500)
    paths, remarks = [str(tmp_path / "01A")], list[str]()
    for ends_after in (3, 5):
        with pytest.raises(Ended):
            import_local(blocks_input(paths), ground.places, ground.shared, options, progress=ending(ends_after))
    done = import_local(blocks_input(paths), ground.places, ground.shared, options, remark=remarks.append)
    assert done.steps_before >= 5
    assert f"going on after {done.steps_before} of {done.steps} steps of import {done.job_id}" in remarks
    assert ground.held() == held(HOSTS)
    assert done.samples == done.rows_valid == sum(len(of) for _, of in HOSTS)
    assert done.chunks == len(ground.rows())
    # Each ended run had written one step without a note.
    assert appended(ground, CHUNKS) < done.chunks + 2 * done.chunks // done.steps + 4


def test_other_files_under_a_job_id_are_refused(ground: ImportGround, tmp_path: Path) -> None:
    write_block(tmp_path / "01A", HOSTS[:1])
    write_block(tmp_path / "01B", HOSTS[1:2])
    run(ground, tmp_path / "01A", job_id="one")
    with pytest.raises(ConfigMismatch, match="a job id stands for one input"):
        run(ground, tmp_path / "01B", job_id="one")


def test_overlapping_blocks_are_named_and_each_sample_counts_once(ground: ImportGround, tmp_path: Path) -> None:
    first, second = samples(100), samples(100, PAST_MS + 50 * 60_000, first=50 / 8)
    write_block(tmp_path / "data" / "01A", [(labels("cpu"), first)])
    write_block(tmp_path / "data" / "01B", [(labels("cpu"), [*second[:-1], (second[-1][0], 1e9)])])
    write_block(tmp_path / "data" / "01C", [(labels("cpu"), [(first[3][0], 1e6)])])
    remarks: list[str] = []
    options = LocalOptions(wait_s=WAIT_S)
    done = import_local(blocks_input([str(tmp_path / "data")], remarks.append), ground.places, ground.shared, options)
    assert [text.partition(":")[0] for text in remarks if "overlap" in text] == [
        "blocks 01A and 01C overlap from 2020-01-01T00",
        "blocks 01A and 01B overlap from 2020-01-01T00",
    ]
    assert (done.duplicates, done.conflicts, done.samples) == (50, 1, 150)
    expected = dict([*first, *second[:-1], (second[-1][0], 1e9), (first[3][0], 1e6)])
    assert ground.held() == held([(labels("cpu"), sorted(expected.items()))])


def test_deleted_samples_are_not_imported(ground: ImportGround, tmp_path: Path) -> None:
    of = samples(50)
    write_block(tmp_path / "01A", [(labels("cpu"), of)], deleted={0: (of[10][0], of[20][0])})
    assert run(ground, tmp_path / "01A").samples == 39
    assert ground.held() == held([(labels("cpu"), of[:10] + of[21:])])


def test_samples_that_cannot_be_imported_are_counted_and_shown_and_the_others_are_imported(
    ground: ImportGround, tmp_path: Path
) -> None:
    now_ms = SystemClock().now_ms()
    far = [(-(1 << 55), 1.0), (PAST_MS, 2.0), (1 << 55, 3.0)]
    series: Series = [
        (labels("good"), samples(10)),
        (labels("far"), far),
        (labels("new"), [(PAST_MS, 1.0), (now_ms - 3 * HOUR_MS, 2.0), (now_ms, 3.0)]),
        ({"job": "j"}, samples(3)),
        (labels("histogram"), samples(3)),
        (labels("reserved", __resolution__="5m"), samples(2)),
    ]
    write_block(tmp_path / "01A", series, histograms={4: UNKNOWN_SCHEMA})
    remarks: list[str] = []
    options = LocalOptions(wait_s=WAIT_S)
    done = import_local(
        blocks_input([str(tmp_path / "01A")]), ground.places, ground.shared, options, remark=remarks.append
    )
    assert {row.reason: row.rows for row in done.rows} == {
        "labels_reserved": 2,
        "native_histogram": 1,
        "no_metric_name": 3,
        "timestamp_out_of_range": 2,
        "too_recent": 2,
    }
    assert (done.ok, done.rejected, done.samples) == (False, 10, 12)
    assert ground.held() == held([series[0], (series[1][0], far[1:2]), (series[2][0], series[2][1][:1])])
    text = "\n".join(remarks)
    assert f"refused: timestamp_out_of_range: {json.dumps(dict(sorted(labels('far').items())))}" in text
    assert "2 samples are at or after " in text
    assert "`tsdb write` brings those" in text
    assert run(ground, tmp_path / "01A", allow_rejects=True).ok


Break = Callable[[Path], object]


def flipped(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(bytes(data))


def meta(block: Path, **fields: object) -> None:
    found = json.loads((block / "meta.json").read_text())
    stats = {**found["stats"], **{name: value for name, value in fields.items() if name in found["stats"]}}
    rest = {name: value for name, value in fields.items() if name not in stats}
    (block / "meta.json").write_text(json.dumps({**found, **rest, "stats": stats}))


BROKEN: dict[str, tuple[Break, type[TsdbError], str]] = {
    "a flipped byte of a chunk": (
        lambda block: flipped(block / "chunks" / "000001", 40),
        CorruptData,
        r"01B/chunks/000001: wrong checksum",
    ),
    "a segment that is gone": (
        lambda block: (block / "chunks" / "000001").unlink(),
        CorruptData,
        "the index names segment 1; there are 0",
    ),
    "an index cut short": (
        lambda block: (block / "index").write_bytes((block / "index").read_bytes()[:60]),
        CorruptData,
        "01B/index",
    ),
    "another file for an index": (lambda block: (block / "index").write_bytes(b"x" * 100), CorruptData, "no index of"),
    "an index with fewer series": (
        lambda block: meta(block, numSeries=14),
        CorruptData,
        "01B/index has 13 series; meta.json says 14",
    ),
    "an index with fewer chunks": (lambda block: meta(block, numChunks=1), CorruptData, "chunks; meta.json says 1"),
    "no meta.json": (lambda block: (block / "meta.json").unlink(), InvalidRequest, "01B has no meta.json: Prometheus"),
    "a meta.json that is none": (lambda block: (block / "meta.json").write_text("[]"), CorruptData, "meta.json of a"),
    "a meta.json with other numbers": (lambda block: meta(block, minTime="x"), CorruptData, "must be whole numbers"),
    "a later version": (lambda block: meta(block, version=9), UnknownVersion, "block is of version 9"),
    "a nested meta.json": (
        lambda block: (block / "meta.json").write_text("[" * 100_000),
        CorruptData,
        "is no meta.json of a block",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_block_is_named_and_no_block_is_written(ground: ImportGround, tmp_path: Path, case: str) -> None:
    breaks, kind, words = BROKEN[case]
    write_block(tmp_path / "data" / "01A", HOSTS)
    breaks(write_block(tmp_path / "data" / "01B", HOSTS))
    with pytest.raises(kind, match=words):
        run(ground, tmp_path / "data")
    assert (appended(ground, METRICS), appended(ground, CHUNKS)) == (0, 0)


def nothing(ground: ImportGround, paths: Sequence[Path], words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        run(ground, *paths)
    assert (appended(ground, METRICS), appended(ground, CHUNKS)) == (0, 0)


def test_an_import_without_anything_to_import_is_refused(ground: ImportGround, tmp_path: Path) -> None:
    block = write_block(tmp_path / "01A", [({"job": "j"}, samples(3))])
    nothing(ground, [block], "no sample to import; refused: 3 no_metric_name")
    nothing(ground, [tmp_path / "01A", tmp_path / "." / "01A"], "01A is given twice")
    nothing(ground, [tmp_path / "nowhere"], "nowhere is no block of Prometheus and has none in it")


def test_blocks_that_prometheus_has_not_finished_are_left_out(ground: ImportGround, tmp_path: Path) -> None:
    write_block(tmp_path / "01A", HOSTS[:1])
    for end in (".tmp-for-creation", ".tmp-for-deletion"):
        write_block(tmp_path / f"01B{end}", HOSTS[1:2])
    assert run(ground, tmp_path).inputs == 1
    assert ground.held() == held(HOSTS[:1])


def test_a_window_too_dense_for_memory_names_the_way_on_spark(ground: ImportGround, tmp_path: Path) -> None:
    dense = [*samples(3_000, step_ms=1_000), (PAST_MS + 40 * 24 * HOUR_MS, 1.0)]
    write_block(tmp_path / "01A", [(labels("cpu"), dense)])
    with pytest.raises(Overloaded, match=r"over 2400 samples .*`tsdb spark import`"):
        run(ground, tmp_path / "01A", step_samples=300)


def test_rows_in_memory_are_imported_as_a_block_with_them(ground: ImportGround) -> None:
    rows = [(code, ts_ms, value) for code, (_, of) in enumerate(HOSTS) for ts_ms, value in of]
    random.Random(3).shuffle(rows)
    rows.append(rows[0])  # Twice in the input.
    codes, ts_ms, values = (np.array(column) for column in zip(*rows, strict=True))
    pairs = [tuple(sorted(one.items())) for one, _ in HOSTS]
    source = RowsInMemory(pairs, codes.astype(np.int32), ts_ms, values)
    given, options = ImportInput("print", [lambda: source], len(rows)), LocalOptions(wait_s=WAIT_S, step_samples=900)
    done = import_local(given, ground.places, ground.shared, options)
    assert ground.held() == held(HOSTS)
    assert (done.inputs, done.duplicates, done.rows_valid) == (1, 1, len(rows))


@pytest.mark.slow
def test_nothing_of_spark_is_imported() -> None:
    code = (
        "import sys; import spark_backfill.jobs.imports.local, tsdb.cli.import_samples;"
        "print([name for name in sys.modules if name.startswith(('pyspark', 'py4j', 'pandas'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
