"""Warm-up: compile the kernels of the write path, or load them from the cache, before the first request."""

from __future__ import annotations

import numpy as np

from ingest.appends.records import encode_ranges, join_records, ranges_by_partition
from ingest.grouping import group
from ingest.grpc.write_request import decode_write_request
from ingest.limits import IngestLimits
from ingest.rows import make_rows
from ingest.series.announcements import find_due
from ingest.series.resolver import SeriesResolver
from ingest.series.table import SeriesTable
from tsdb.codec.records.log_record import encode_tick
from tsdb.codec.records.series_record import encode_announcements
from tsdb.model.placement import PlacementRule


def warm_up() -> None:
    """Run one invented row through every kernel. Writes nothing."""
    decode_write_request(b"\x0a\x01a")
    rows = make_rows([b"__name__\xffa"], None, np.zeros(1, np.int64), np.zeros(1, np.float64))
    good, which = np.ones(1, np.bool_), np.zeros(1, np.int64)
    table = SeriesTable(1, 1)
    resolver = SeriesResolver(table, PlacementRule(), 1, IngestLimits())
    series = resolver.resolve(rows, 0)
    labels = resolver.normalize(rows, which)
    encode_announcements(series.series_id, which, series.pack_id, labels.labels, labels.label_starts, which)
    table.set_known(series, which, 1, 0)
    table.postpone_renewal(series, 1)
    find_due(rows, series, good, 0)
    grouped = group(rows, series, good)
    record = encode_ranges(grouped, ranges_by_partition(grouped))[0].data
    join_records([record, record])
    encode_tick()
