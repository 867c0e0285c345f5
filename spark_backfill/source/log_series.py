"""Log series: the series announced in a partition, selected by matchers."""

from __future__ import annotations

import numpy as np

from spark_backfill.source.series_table import SeriesLabels
from tsdb.codec.records.record_status import STATUS_CORRUPT, STATUS_UNKNOWN_VERSION
from tsdb.codec.records.series_record import decode_announcements
from tsdb.index.index import SeriesIndex
from tsdb.log.interface import SERIES, Log
from tsdb.log.records import read_batches
from tsdb.model.errors import UnknownVersion
from tsdb.model.selector import Matcher


def log_series(log: Log, partition: int, matchers: tuple[Matcher, ...]) -> SeriesLabels:
    """Series of one partition, announced so far, that satisfy all matchers; without matchers every series.

    A corrupt announcement is skipped: its series stays unknown. Raises UnknownVersion, and as the log does.
    """
    index = SeriesIndex()
    for batch in read_batches(log, SERIES, partition):
        records = decode_announcements(batch.keys, batch.key_starts, batch.values, batch.value_starts)
        if (records.status == STATUS_UNKNOWN_VERSION).any():
            raise UnknownVersion(f"topic {SERIES}, partition {partition}: a newer writer's record")
        if batch.null_values is not None:
            records.status[batch.null_values] = STATUS_CORRUPT
        index.register(records, batch.values, batch.broker_ms)
    refs = index.select(matchers) if matchers else index.all_refs()
    joined, lengths = index.labels_of(refs)
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    labels = [bytes(joined[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)]
    return SeriesLabels(index.series_ids_of(refs), labels)
