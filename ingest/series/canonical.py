"""Canonical labels: checks the label sets of some rows, and gives their canonical form, hashes, pack and partition.

The hash of a process is xxh3-64 with a random seed, so that a sender cannot choose inputs with equal hashes.

Sources and series are compared by it within the process; it is never written.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from ingest.rows import Rows
from ingest.series.label_kernels import SPAN, hash_rows_kernel, normalize_kernel
from tsdb.codec.xxh3_kernels import long_secret
from tsdb.model.labels import LabelLimits
from tsdb.model.placement import PlacementRule

SEED = int.from_bytes(os.urandom(8), "little")
PLAIN_SECRET, SEEDED_SECRET = long_secret(0), long_secret(SEED)

_SEED = np.uint64(SEED)


@dataclass(frozen=True, slots=True)
class CanonicalLabels:
    """m label sets. code: uint8, VALID or the first problem; the other fields of an invalid set have no meaning.

    Set i is labels[label_starts[i]:label_starts[i + 1]]. series_id, check, pack_id: uint64; partition: int64; source:
    uint32, source_hash of the placement.

    """

    code: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    label_starts: NDArray[np.int64]
    series_id: NDArray[np.uint64]
    check: NDArray[np.uint64]
    pack_id: NDArray[np.uint64]
    partition: NDArray[np.int64]
    source: NDArray[np.uint32]


class LabelNormalizer:
    """Thread-safe and without state."""

    def __init__(self, rule: PlacementRule, partitions: int, limits: LabelLimits) -> None:
        names = [label.encode() for label in rule.labels]
        self._rule = np.frombuffer(b"".join(names), np.uint8)
        self._rule_starts = np.cumsum([0, *map(len, names)])
        self._partitions = partitions
        self._bounds = np.array(
            [limits.labels_max, limits.name_bytes_max, limits.value_bytes_max, limits.total_bytes_max], np.int64
        )
        self._scratch_bytes = (len(names) + 2) * (limits.total_bytes_max + 1)

    def normalize(self, rows: Rows, which: NDArray[np.int64]) -> CanonicalLabels:
        """The label sets of the rows `which`, int64, in that order."""
        count = len(which)
        size = int((rows.label_starts[which + 1] - rows.label_starts[which]).sum())
        made = CanonicalLabels(
            np.empty(count, np.uint8),
            np.empty(size, np.uint8),
            np.empty(count + 1, np.int64),
            np.empty(count, np.uint64),
            np.empty(count, np.uint64),
            np.empty(count, np.uint64),
            np.empty(count, np.int64),
            np.empty(count, np.uint32),
        )
        normalize_kernel(
            rows.labels,
            rows.label_starts,
            which,
            self._bounds,
            self._rule,
            self._rule_starts,
            self._partitions,
            PLAIN_SECRET,
            _SEED,
            SEEDED_SECRET,
            np.empty(SPAN * int(self._bounds[0]), np.int64),
            np.empty(self._scratch_bytes, np.uint8),
            made.labels,
            made.label_starts,
            made.code,
            made.series_id,
            made.check,
            made.pack_id,
            made.partition,
            made.source,
        )
        return made


def hash_rows(rows: Rows) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """(series_id, check) of the labels of each row as they are, uint64. Labels out of order have other hashes."""
    series_id, check = np.empty(len(rows), np.uint64), np.empty(len(rows), np.uint64)
    hash_rows_kernel(rows.labels, rows.label_starts, PLAIN_SECRET, _SEED, SEEDED_SECRET, series_id, check)
    return series_id, check


def source_hash(placement: bytes) -> int:
    """Hash of a placement, stored instead of its text; unsigned, 32 bit."""
    return xxhash.xxh3_64_intdigest(placement, SEED) >> 32


def check_hash(canonical: bytes) -> int:
    """A second hash of canonical labels, in addition to their series id; unsigned, 64 bit."""
    return xxhash.xxh3_64_intdigest(canonical, SEED)
