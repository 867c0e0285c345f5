"""Warm-up of the series index: calls each of its kernels once, so that no first write or read waits for one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tsdb.codec.records.series_record import decode_announcements, encode_announcement
from tsdb.index.cardinality import By
from tsdb.index.index import SeriesIndex
from tsdb.index.label_arena import LabelArena
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.selector import Matcher, MatchType

SERIES = 1_000  # More series than the first size of each table, because growing a table uses further kernels.
_NAME = Matcher(MatchType.EQUAL, "__name__", "warm_up")
_SELECTORS = (
    (_NAME,),
    (Matcher(MatchType.EQUAL, "job", "a"), Matcher(MatchType.NOT_REGEX, "instance", "b.*")),
    (Matcher(MatchType.REGEX, "instance", "a.+"),),
    (Matcher(MatchType.REGEX, "job", "a[0-9]*"), Matcher(MatchType.NOT_EQUAL, "instance", "")),
)


def warm_up_index() -> None:
    """Compile, or load from the cache, all kernels of the index."""
    labels = [
        canonical_labels({"__name__": "warm_up", "job": "a", "instance": f"{'ab'[number % 2]}{number}"})
        for number in range(SERIES)
    ]
    index = SeriesIndex()
    for some in (labels[:2], labels[:2], labels):
        _register(index, some)
    for selector in _SELECTORS:
        index.select(selector)
    refs = index.refs_of(index.id_of_ref[: index.refs_size])
    index.labels_of(refs)
    index.group_counts(["job"], refs)
    index.label_values("job", (_NAME,))
    index.layout_order(refs)
    for by in By:
        for names in (["job", "instance"], ["absent"]):
            index.cardinality(by, (_NAME,), 1).groups(by, names)
    index.forget(refs)
    index.compact()
    # Called directly, because a selector filters series one by one only when it names very many pairs.
    arena = LabelArena()
    arena.write(refs, b"".join(labels), np.array([len(canonical) for canonical in labels], np.uint32))
    arena.filter(refs, arena.pairs_of(b"job", [b"a"]), keep=True)


def _register(index: SeriesIndex, labels: Sequence[bytes]) -> None:
    records = [encode_announcement(series_id(canonical), 0, 1, canonical) for canonical in labels]
    keys, values = (b"".join(record[side] for record in records) for side in (0, 1))
    key_ends = np.cumsum([0, *(len(key) for key, _ in records)])
    value_ends = np.cumsum([0, *(len(value) for _, value in records)])
    announced = decode_announcements(keys, key_ends, values, value_ends)
    index.register(announced, values, np.zeros(len(labels), np.int64))
