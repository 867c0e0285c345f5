"""Exemplars for tests: between plain tuples and the arrays of the codec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tsdb.codec.records.exemplar_record import Exemplars, encode_exemplars
from tsdb.codec.records.log_record import DecodedRecords, decode_records
from tsdb.model.labels import canonical_labels, parse_labels

One = tuple[int, int, float, Mapping[str, str]]
"""(series id, ts_ms, value, labels)."""


def exemplars_of(ones: Sequence[One]) -> Exemplars:
    """The exemplars in their order."""
    labels = [canonical_labels(of) for *_, of in ones]
    return Exemplars(
        np.array([series_id for series_id, *_ in ones], np.uint64),
        np.array([ts_ms for _, ts_ms, _, _ in ones], np.int64),
        np.array([value for _, _, value, _ in ones], np.float64),
        np.frombuffer(b"".join(labels), np.uint8),
        np.cumsum([0, *map(len, labels)], dtype=np.int64),
    )


def plain(exemplars: Exemplars) -> list[One]:
    """The exemplars as tuples."""
    columns = exemplars.series_id.tolist(), exemplars.ts_ms.tolist(), exemplars.values.tolist()
    return [
        (series_id, ts_ms, value, dict(parse_labels(exemplars.labels_of(index))))
        for index, (series_id, ts_ms, value) in enumerate(zip(*columns, strict=True))
    ]


def records_of(groups: Sequence[Sequence[One]]) -> DecodedRecords:
    """One record for each group, decoded."""
    encoded = [encode_exemplars(exemplars_of(group)) for group in groups]
    return decode_records(b"".join(encoded), np.cumsum([0, *map(len, encoded)], dtype=np.int64))
