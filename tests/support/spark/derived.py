"""Ground for downsampling: a storm in log and history, the derived samples of a reader, and those of the twin."""

from __future__ import annotations

import struct
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from support.data.late_storm import EVER, FIRST_WINDOW
from support.oracles.derived_twin import LastValues, derived_twin
from support.servers.histories import META, WINDOW_MS, HistoryFactory
from support.servers.logs import LogFactory
from support.spark.storm_pair import StormPair
from tsdb.codec.chunk.chunk import decode_chunk
from tsdb.history.interface import Loaded
from tsdb.history.merge import merge
from tsdb.model.labels import series_id
from tsdb.model.resolution import AGGREGATES, RESOLUTION, derived_labels
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


def _windows(pair: StormPair, packs: list[int]) -> list[list]:  # type: ignore[type-arg]
    windows = defaultdict(list)
    for piece in pair.history.read(packs, EVER):
        for row in piece:
            windows[row.key.pack_id, row.key.window_start_ms].append(decode_chunk(row.value))
    return list(windows.values())
