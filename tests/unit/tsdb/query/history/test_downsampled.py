"""Steps from derived series: equal to steps of samples, from the coarsest fitting resolution, only on request."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import pytest

from support.counters import sample
from support.data.heads import bits, canonical_of, id_of
from support.fakes.fake_history import PLACEMENT
from support.oracles.derived_twin import LastValues, derived_twin
from support.oracles.fragment_twin import bits as bits_of
from support.oracles.fragment_twin import fragment_of
from support.oracles.histogram_twin import Hist, detailed_fragment
from support.servers.queriers import TOPIC_ID, one_store, select
from support.servers.seams import END_MS, NUMBERS, START_MS, WINDOW_MS, Seam
from tsdb.answer.spec import SelectSpec
from tsdb.client import SelectQuery, SelectResult
from tsdb.codec.chunk.chunk import encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.head.read import step_kernels as steps
from tsdb.history.interface import HistoryHole
from tsdb.log.downsampled import Downsampled
from tsdb.model.clock import ManualClock
from tsdb.model.errors import HoleInRange, InvalidRequest
from tsdb.model.labels import series_id
from tsdb.model.resolution import derived_labels
from tsdb.model.window import floor_to, index_epoch
from tsdb.query.history.downsampled import DerivedPart, DerivedSteps, Resolutions
from tsdb.query.history.index import HistoryIndex, HistorySeries
from tsdb.query.service import QuerierService
from tsdb.query.sources import HistorySource, Sources
from tsdb.reader.read_call import SelectLimits

LENGTHS_MS = {"5m": 100, "1h": 400}  # A window has about as many steps as in production.
AGGREGATIONS = {"last": steps.LAST, "avg": steps.AVG, "min": steps.MIN, "max": steps.MAX, "sum": steps.SUM, "count": 6}
DERIVED_END_MS = START_MS + 5 * WINDOW_MS
COUNTER = "tsdb_query_downsampled_partitions_total"


class DownsampledSeam(Seam):
    """A seam of which the first five windows are downsampled."""

    def __init__(self) -> None:
        super().__init__()
        self.spans = dict.fromkeys(LENGTHS_MS, Downsampled(START_MS, DERIVED_END_MS))
        self.asked = 0
        self.clock = ManualClock()
        for resolution, length_ms in LENGTHS_MS.items():
            self._derive(resolution, length_ms)
        past = HistorySource(
            self.history, HistoryIndex(self.history), WINDOW_MS, Resolutions(self._said, self.clock, LENGTHS_MS)
        )
        self.service = QuerierService(Sources(one_store(self.served), TOPIC_ID, range(1), past), SelectLimits())

    def forget_sources(self) -> None:
        """Delete the samples of downsampled windows; only derived series are left there."""
        packs = {PLACEMENT.place(canonical_of(number)).pack_id for number in NUMBERS}
        for key in [key for key in self.history.rows if key.pack_id in packs and key.window_start_ms < DERIVED_END_MS]:
            del self.history.rows[key]

    def _said(self) -> Mapping[str, Downsampled]:
        self.asked += 1
        return self.spans

    def _derive(self, resolution: str, length_ms: int) -> None:
        windows: dict[int, dict[tuple[int, int], float]] = defaultdict(dict)
        for number, found in self.twin.samples(NUMBERS, START_MS, DERIVED_END_MS).items():
            for ts_ms, value in found.items():
                windows[floor_to(ts_ms, WINDOW_MS)][number, ts_ms] = value
        last: LastValues = {}
        for window, samples in sorted(windows.items()):
            packs: dict[int, dict[tuple[int, int], tuple[int, int]]] = defaultdict(dict)
            for (aggregate, number, ts_ms), value in derived_twin(samples, last, length_ms).items():
                canonical = derived_labels(canonical_of(number), resolution, aggregate)
                of, epoch = series_id(canonical), index_epoch(series_id(canonical), ts_ms)
                packs[PLACEMENT.place(canonical).pack_id][of, ts_ms] = (9, bits_of(value))
                self.history.announce(canonical, of, epoch, 0)
            for pack_id, derived in packs.items():
                (chunk,) = encode_chunk(fragment_of(derived, pack_id, window), window_ms=WINDOW_MS)
                self.history.rows[ChunkKey(pack_id, window, Kind.IMPORT, 9, 0)] = chunk


@pytest.fixture
def seam() -> DownsampledSeam:
    return DownsampledSeam()


def query(step_ms: int, aggregation: str = "sum", *, start_ms: int = START_MS, downsampled: bool = True) -> SelectQuery:
    selector = '{job="test"}'
    return SelectQuery(selector, start_ms, END_MS, step_ms=step_ms, agg=aggregation, downsampled=downsampled)


def answered(result: SelectResult) -> dict[int, dict[int, float]]:
    numbers = {canonical_of(number): number for number in NUMBERS}
    return {
        numbers[one.canonical]: dict(zip(one.ts_ms.tolist(), one.values.tolist(), strict=True)) for one in result.series
    }


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("step_ms", [100, 200, 400, 800, 1200])
def test_steps_are_those_of_the_samples_though_these_are_gone(
    seam: DownsampledSeam, step_ms: int, aggregation: str
) -> None:
    want = seam.twin.steps(NUMBERS, START_MS, END_MS, step_ms, AGGREGATIONS[aggregation])
    assert bits(answered(select(seam.service, query(step_ms, aggregation)))) == bits(want)
    # A step that is not fully downsampled is computed from samples.
    seam.forget_sources()
    left = answered(select(seam.service, query(step_ms, aggregation)))
    whole_ms = START_MS + (DERIVED_END_MS - START_MS) // step_ms * step_ms
    assert bits(cut(left, whole_ms)) == bits(cut(want, whole_ms))


def cut(found: dict[int, dict[int, float]], end_ms: int) -> dict[int, dict[int, float]]:
    return {number: {ts: value for ts, value in one.items() if ts < end_ms} for number, one in found.items()}


@pytest.mark.parametrize(
    ("step_ms", "start_ms", "resolution"),
    [(400, 0, "1h"), (800, 0, "1h"), (200, 0, "5m"), (100, 0, "5m"), (400, 100, "5m"), (150, 0, None), (100, 50, None)],
)
def test_the_coarsest_resolution_that_divides_the_steps_is_used(
    seam: DownsampledSeam, step_ms: int, start_ms: int, resolution: str | None
) -> None:
    before = {name: sample(COUNTER, resolution=name) for name in LENGTHS_MS}
    want = seam.twin.steps(NUMBERS, START_MS + start_ms, END_MS, step_ms, steps.SUM)
    got = answered(select(seam.service, query(step_ms, start_ms=START_MS + start_ms)))
    assert bits(got) == bits(want)
    moved = [name for name in LENGTHS_MS if sample(COUNTER, resolution=name) > before[name]]
    assert moved == ([resolution] if resolution else [])


def test_samples_are_read_unless_downsampled_is_requested(seam: DownsampledSeam) -> None:
    seam.forget_sources()
    got = answered(select(seam.service, query(400, downsampled=False)))
    assert all(min(one) >= DERIVED_END_MS for one in got.values())
    assert seam.asked == 0


def test_the_downsampled_spans_are_read_once_a_minute(seam: DownsampledSeam) -> None:
    for _ in range(3):
        select(seam.service, query(400))
    assert seam.asked == 1
    seam.spans.clear()
    seam.clock.advance(61_000)
    seam.forget_sources()
    got = answered(select(seam.service, query(400)))
    assert seam.asked == 2
    assert all(min(one) >= DERIVED_END_MS for one in got.values()), "nothing is downsampled any more"


def test_a_start_before_the_downsampled_span_is_answered_from_samples(seam: DownsampledSeam) -> None:
    seam.spans = dict.fromkeys(LENGTHS_MS, Downsampled(START_MS + WINDOW_MS, DERIVED_END_MS))
    want = seam.twin.steps(NUMBERS, START_MS, END_MS, 400, steps.SUM)
    assert bits(answered(select(seam.service, query(400)))) == bits(want)


def test_downsampled_needs_steps_and_matchers(seam: DownsampledSeam) -> None:
    plain = SelectQuery('{job="test"}', START_MS, END_MS, downsampled=True)
    by_id = dataclasses.replace(query(400), selector=None, series_ids=np.array([id_of(1)], np.uint64))
    for bad in (plain, by_id):
        with pytest.raises(InvalidRequest, match="goes with step_ms and matchers"):
            select(seam.service, bad)


def test_a_lost_chunk_of_derived_series_refuses_the_reads_that_need_it() -> None:
    seam = DownsampledSeam()
    derived = derived_labels(canonical_of(1), "1h", "sum")
    pack_id = PLACEMENT.place(derived).pack_id
    assert pack_id != PLACEMENT.place(canonical_of(1)).pack_id
    hole = HoleRecord(0, pack_id, START_MS, START_MS + WINDOW_MS, "corrupt_chunk", 7)
    seam.history.hole_list = [HistoryHole(hole, False)]
    asked = SelectQuery("m_1", START_MS, DERIVED_END_MS, step_ms=400, agg="sum")
    assert select(seam.service, asked).samples
    with pytest.raises(HoleInRange, match="corrupt_chunk"):
        select(seam.service, dataclasses.replace(asked, downsampled=True))


@pytest.mark.parametrize("aggregation", list(AGGREGATIONS))
def test_derived_steps_of_histograms_are_refused_whatever_the_aggregation(aggregation: str) -> None:
    """A step of histograms has no minimum, so only its last sample shows that the answer would be short."""
    spec = SelectSpec((), None, 0, 1000, step_ms=100, aggregation=AGGREGATIONS[aggregation])
    source = canonical_of(1)
    names = sorted((derived_labels(source, "5m", one) for one in ("last", "count", "min", "max", "sum")), key=series_id)
    ids = np.array(list(map(series_id, names)), np.uint64)
    found = HistorySeries(ids, names, [9], 0, 1000)
    derived = DerivedSteps(DerivedPart("5m", 1000), spec, found, np.array([series_id(source)], np.uint64))
    last = series_id(derived_labels(source, "5m", "last"))
    assert last in derived.series_ids.tolist()
    with pytest.raises(InvalidRequest, match="native histograms") as refused:
        list(derived.steps(detailed_fragment({(last, 100): Hist(0, {1: 2.0})})))
    assert refused.value.reason == "native_histograms"
