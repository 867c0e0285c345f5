"""Ground for downsampling: a storm in log and history, the derived samples of a reader, and those of the twin."""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from support.data.late_storm import EVER, EVERY_MS, FIRST_WINDOW, acked, announce
from support.oracles.derived_twin import LastValues, derived_twin
from support.oracles.histogram_twin import (
    Hist,
    Key,
    Last,
    Sample,
    Steps,
    detailed_fragment,
    histogram_steps_twin,
    samples_in,
)
from support.servers.histories import META, WINDOW_MS, HistoryFactory
from support.servers.logs import LogFactory
from support.spark.storm_pair import StormPair
from tsdb.codec.chunk.chunk import decode_chunk, encode_chunk
from tsdb.codec.chunk.key import ChunkKey, Kind, encode_key
from tsdb.history.interface import Loaded
from tsdb.history.merge import merge
from tsdb.log.interface import CHUNKS
from tsdb.model.histograms import GAUGE, UNKNOWN
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.resolution import AGGREGATES, RESOLUTION, derived_labels, source_labels
from tsdb.model.selector import Matcher, MatchType
from tsdb.query.history.index import Choice, HistoryIndex

Derived = dict[tuple[str, int, int], bytes]  # (aggregate, source, bucket) -> bits


@contextmanager
def filled(log_url: str, history_url: str) -> Iterator[StormPair]:
    """A storm of six packs."""
    with LogFactory(log_url, f"t{uuid.uuid4().hex[:12]}.") as log, HistoryFactory(history_url) as history:
        history.create()
        made = StormPair(log, history)
        made.storm.packs = 6
        made.filled()
        yield made


def wanted(pair: StormPair, resolution_ms: int) -> Derived:
    """Derived samples by the twin, window after window, of the samples that reads return."""
    found: Derived = {}
    windows: dict[int, list[int]] = defaultdict(list)
    for pack_id, window in sorted(pair.storm.wanted):
        windows[pack_id].append(window)
    for pack_id, starts in windows.items():
        last: LastValues = {}
        for window in starts:
            samples = {
                key: struct.unpack("<d", struct.pack("<Q", bits))[0]
                for key, (_, bits) in pair.storm.wanted[pack_id, window].items()
            }
            made = derived_twin(samples, last, resolution_ms)
            found |= {key: struct.pack("<d", value) for key, value in made.items()}
    return found


def derived(pair: StormPair, resolution: str, index: HistoryIndex | None = None) -> Derived:
    """Derived samples as a reader finds them, by the labels of the sources. index: the reader's cached index."""
    index = index or HistoryIndex(pair.history)
    needs = dict.fromkeys(range(META.partitions), 0)
    loaded = {partition: Loaded("topic", partition, 100, 0) for partition in needs}
    start_ms, end_ms = FIRST_WINDOW * WINDOW_MS, (FIRST_WINDOW + pair.storm.windows) * WINDOW_MS
    sources = index.find(Choice(()), start_ms, end_ms, loaded, needs)
    names = {
        series_id(derived_labels(canonical, resolution, aggregate)): (aggregate, series_id(canonical))
        for series in sources.values()
        for canonical in series.labels
        for aggregate in AGGREGATES
    }
    choice = Choice((Matcher(MatchType.EQUAL, RESOLUTION, resolution),))
    packs = {
        pack for series in index.find(choice, start_ms, end_ms, loaded, needs).values() for pack in series.pack_ids
    }
    assert packs.isdisjoint(pair.storm.partition)
    found: Derived = {}
    for piece in _windows(pair, sorted(packs)):
        fragment = merge(piece)
        series = np.repeat(fragment.series_id, np.diff(fragment.sample_start)).tolist()
        bits = [struct.pack("<d", value) for value in fragment.value.tolist()]
        for one, ts_ms, value in zip(series, fragment.ts_ms.tolist(), bits, strict=True):
            aggregate, source = names[one]
            found[aggregate, source, ts_ms] = value
    return found


HISTOGRAMS = "latency"  # Metric of `write_histograms`.


def write_histograms(pair: StormPair) -> list[dict[Key, Sample]]:
    """Append two windows of a counter and a gauge, both histograms, and return the samples of each window.

    The counter is reset every 50 minutes, so also within steps of each resolution, and its start timestamp says so.
    """
    counter, gauge = (canonical_labels({"__name__": HISTOGRAMS, "job": "j", "le": one}) for one in ("counter", "gauge"))
    place = PlacementRule().place(counter)
    partition = partition_of(place.placement, META.partitions)
    assert PlacementRule().place(gauge).pack_id == place.pack_id
    found: list[dict[Key, Sample]] = []
    for window in range(FIRST_WINDOW, FIRST_WINDOW + 2):
        start_ms = window * WINDOW_MS
        announce(pair.log, partition, (counter, gauge), place.pack_id, start_ms)
        samples: dict[Key, Sample] = {}
        for at in range(WINDOW_MS // EVERY_MS):
            ts_ms, age = start_ms + EVERY_MS * at, at % 50
            counts = {-2: float(age), 1: 3.0 * age}
            samples[series_id(counter), ts_ms] = Hist(3, counts, 2.0, 4.0 * age, UNKNOWN, ts_ms - EVERY_MS * age - 1)
            samples[series_id(gauge), ts_ms] = Hist(at % 3, {at % 5: float(at)}, 1.0, float(at), GAUGE)
        found.append(samples)
        fragment = detailed_fragment(samples, place.pack_id, start_ms)
        for part, value in enumerate(encode_chunk(fragment, window_ms=WINDOW_MS)):
            key = encode_key(ChunkKey(place.pack_id, start_ms, Kind.BASE, 100, part))
            pair.log.append(CHUNKS, partition, value, key=key, on_done=acked)
    pair.log.flush(60.0)
    return found


def wanted_histograms(windows: list[dict[Key, Sample]], resolution_ms: int) -> Steps:
    """Derived samples by the twin."""
    last: Last = {}
    return {
        key: value for samples in windows for key, value in histogram_steps_twin(samples, last, resolution_ms).items()
    }


def derived_histograms(pair: StormPair, resolution: str) -> Steps:
    """Derived samples of the histograms as a reader finds them."""
    matchers = (
        Matcher(MatchType.EQUAL, "__name__", HISTOGRAMS),
        Matcher(MatchType.EQUAL, RESOLUTION, resolution),
    )
    needs = dict.fromkeys(range(META.partitions), 0)
    loaded = {partition: Loaded("topic", partition, 100, 0) for partition in needs}
    span = FIRST_WINDOW * WINDOW_MS, (FIRST_WINDOW + 2) * WINDOW_MS
    series = HistoryIndex(pair.history).find(Choice(matchers), *span, loaded, needs).values()
    names = {}
    for canonical in (canonical for one in series for canonical in one.labels):
        source, _, aggregate = source_labels(canonical)
        names[series_id(canonical)] = aggregate, series_id(source)
    found: Steps = {}
    for piece in _windows(pair, sorted({pack for one in series for pack in one.pack_ids})):
        for (of, ts_ms), value in samples_in(merge(piece)).items():
            aggregate, source_id = names[of]
            found[aggregate, source_id, ts_ms] = value
    return found


def _windows(pair: StormPair, packs: list[int]) -> list[list]:  # type: ignore[type-arg]
    windows = defaultdict(list)
    for piece in pair.history.read(packs, EVER):
        for row in piece:
            windows[row.key.pack_id, row.key.window_start_ms].append(decode_chunk(row.value))
    return list(windows.values())
