"""Series whose label values keep a bad regular expression busy: some 10 ms a value."""

from __future__ import annotations

import random

import numpy as np

from support.data.heads import new_head
from tsdb.codec.records.record_status import STATUS_OK
from tsdb.codec.records.series_record import DecodedAnnouncements
from tsdb.head.head import Head
from tsdb.model.labels import canonical_labels, series_id

SLOW_PATTERN = "(?:.*[ab]){600}c"
VALUE_BYTES = 1900


def long_labels(number: int) -> dict[str, str]:
    """Labels of a numbered series, one value of them long."""
    letters = random.Random(number).choices("abcx", k=VALUE_BYTES)
    return {"__name__": "m", "job": "j", "instance": "i", "long": "".join(letters)}


def head_of_long_values(count: int) -> Head:
    """A head with `count` series, each with a different long label value."""
    head = new_head()
    canonical = [canonical_labels(long_labels(number)) for number in range(count)]
    ends = np.cumsum([0, *map(len, canonical)], dtype=np.int64)
    records = DecodedAnnouncements(
        status=np.full(count, STATUS_OK, np.uint8),
        series_id=np.array([series_id(one) for one in canonical], np.uint64),
        epoch=np.zeros(count, np.int32),
        pack_id=np.ones(count, np.uint64),
        label_start=ends[:-1],
        label_end=ends[1:],
    )
    head.register(records, b"".join(canonical), np.full(count, 1 << 60, np.int64))
    return head
