"""A window with more samples than a task may hold is built in parts: the same records, in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import spark_backfill.building.build as building
from spark_backfill.building.build import PARTS_MAX, build
from spark_backfill.building.items import BaseItem
from spark_backfill.building.options import BuildOptions, build_options_of
from spark_backfill.building.plan import first_offset_at
from spark_backfill.places import Places
from support.data.recorded_log import BASE_MS, RecordedLog
from support.servers.logs import LogFactory
from support.spark.pipelines import build_options, still
from tsdb.chunks.rebuild import ALL_PACKS, PackRange, WindowRebuild
from tsdb.chunks.records import ChunkRecord
from tsdb.codec.chunk.key import ChunkKey, Kind, WindowKey, decode_key
from tsdb.log.interface import Log
from tsdb.log.topics import CREATE_TIME
from tsdb.model.clock import SystemClock
from tsdb.model.time_set import DEMO
from tsdb.model.window import ceil_to

RECORDED = RecordedLog(1, windows=3)
START_MS = ceil_to(BASE_MS, DEMO.window_ms) + DEMO.window_ms


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with LogFactory(f"sqlite:///{tmp_path / 'log.db'}", "") as logs:
        logs.create(1, timestamp_type=CREATE_TIME)
        log = logs.open(clock=still(RECORDED.end_ms))
        RECORDED.write(log)
        yield log


class Ranges:
    """Ranges of packs that were begun, and the most bytes of samples that one held."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.begun: list[PackRange] = []
        self.most = 0
        made = building._rebuild
        apply = WindowRebuild.apply

        def begin(partition: int, start_ms: int, options: BuildOptions, packs: PackRange = ALL_PACKS) -> WindowRebuild:
            self.begun.append(packs)
            return made(partition, start_ms, options, packs)

        def measured(rebuild: WindowRebuild, *batch: object) -> object:
            done = apply(rebuild, *batch)  # type: ignore[arg-type]
            self.most = max(self.most, rebuild._sample_bytes)
            return done

        patch.setattr(building, "_rebuild", begin)
        patch.setattr(WindowRebuild, "apply", measured)


def item_of(log: Log, *, late: bool) -> BaseItem:
    """A window, with the late minutes between its decision offset and that of the window before."""
    item = BaseItem(0, START_MS, START_MS + DEMO.window_ms)
    if not late:
        return item
    edges = [first_offset_at(log, 0, start_ms + DEMO.grace_ms) for start_ms in (item.start_ms, item.end_ms)]
    assert edges[0] is not None
    assert edges[1] is not None
    return replace(item, late_first=edges[0], late_end=edges[1])


def built(log: Log, item: BaseItem, window_bytes_max: int = 1 << 30) -> list[ChunkRecord]:
    options = replace(build_options(log, Places()), window_bytes_max=window_bytes_max)
    return list(build(item, log, options, SystemClock()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("late", "shares"),
    [(True, (2, 5, 1_000_000)), (False, (2,)), pytest.param(False, (5, 1_000_000), marks=pytest.mark.soak)],
)
def test_parts_give_the_records_of_the_whole_window_in_the_same_order(
    log: Log, late: bool, shares: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    item = item_of(log, late=late)
    whole = built(log, item)
    keys = [decode_key(record.key) for record in whole]
    bases = {key.pack_id for key in keys if isinstance(key, ChunkKey) and key.kind is Kind.BASE}
    assert len(bases) > 3
    assert any(isinstance(key, ChunkKey) and key.kind is Kind.LATE for key in keys) == late
    assert isinstance(keys[-1], WindowKey), "the marker has the counts of all parts"
    ranges = Ranges(monkeypatch)
    assert built(log, item) == whole
    assert ranges.begun == [ALL_PACKS]
    for share in shares:
        ranges.begun.clear()
        assert built(log, item, window_bytes_max=ranges.most // share) == whole
        assert 1 < len(ranges.begun) <= 2 * PARTS_MAX, share


def test_the_ranges_of_a_window_hold_every_pack_once() -> None:
    for parts in (1, 2, 3, 7, PARTS_MAX):
        made = ALL_PACKS.split(parts)
        assert len(made) == parts
        assert (made[0].first, made[-1].end) == (0, 1 << 64)
        assert all(one.end == two.first for one, two in pairwise(made))


def test_the_limit_travels_with_the_options(log: Log) -> None:
    options = replace(build_options(log, Places()), window_bytes_max=77)
    assert build_options_of(options.as_options()) == options
