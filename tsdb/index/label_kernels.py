"""Labels: kernels that keep each series' labels as a run of ids of (name, value) pairs.

A pair is the bytes `name 0xFF value`, as in canonical labels; pairs and names are interned. Callers have reserved the
capacity: nothing here grows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, kernel
from tsdb.index.interned_kernels import COUNT, Interned, equal_kernel, fits_kernel, hash32_kernel, intern_kernel
from tsdb.model.labels import METRIC_NAME, SEPARATOR
from tsdb.model.placement import FAMILY_SUFFIXES

SEPARATOR_BYTE = SEPARATOR[0]
RUN_LABELS_MAX = 0xFFFF

_SUFFIXES = np.frombuffer(b"".join(FAMILY_SUFFIXES), np.uint8)
_SUFFIX_ENDS = np.cumsum([len(suffix) for suffix in FAMILY_SUFFIXES])
_SUFFIX_BITS = len(FAMILY_SUFFIXES).bit_length()
_METRIC_NAME = np.frombuffer(METRIC_NAME, np.uint8)
assert _SUFFIX_BITS == 3, "SeriesRows.layout_order takes a suffix as three bits"


class PairRuns(NamedTuple):
    """Pair ids of each series: entries[start[ref]:start[ref] + length[ref]], in the order of its labels.

    size int64[1]: entries in use. label_bytes: bytes of the canonical labels of each ref.
    """

    size: NDArray[np.int64]
    entries: NDArray[np.uint32]
    start: NDArray[np.uint32]
    length: NDArray[np.uint16]
    label_bytes: NDArray[np.uint32]


class Labels(NamedTuple):
    """A whole label arena. name_of: name id of each pair."""

    names: Interned
    pairs: Interned
    name_of: NDArray[np.uint32]
    runs: PairRuns


@helper
def separator_kernel(data: NDArray[np.uint8], start: Any, end: Any) -> Any:
    """Position of the first separator in data[start:end], or end."""
    position = start
    while position < end and data[position] != SEPARATOR_BYTE:
        position += 1
    return position


@helper
def label_count_kernel(data: NDArray[np.uint8], start: Any, end: Any) -> Any:
    """Number of labels in the canonical labels data[start:end]. -1 if they are not canonical: pairs, names ascending,
    none empty."""
    count, last_start, last_end, position = 0, start, start, start
    while position < end:
        name_end = separator_kernel(data, position, end)
        if name_end in (end, position):
            return -1
        if count and not _is_less(data, last_start, last_end, position, name_end):
            return -1
        last_start, last_end = position, name_end
        count += 1
        position = separator_kernel(data, name_end + 1, end) + 1
        if position == end:  # A separator without a name after it.
            return -1
    return count if 0 < count <= RUN_LABELS_MAX else -1


@helper
def _is_less(data: NDArray[np.uint8], left: Any, left_end: Any, right: Any, right_end: Any) -> bool:
    while left < left_end and right < right_end:
        if data[left] != data[right]:
            return bool(data[left] < data[right])
        left += 1
        right += 1
    return bool(right < right_end)


@helper
def has_capacity_kernel(labels: Labels, more: Any, more_bytes: Any) -> bool:
    """Whether `more` labels of more_bytes in all fit, were they all new; tables stay at most half full."""
    if labels.runs.size[0] + more > labels.runs.entries.size:
        return False
    if labels.pairs.size[COUNT] + more > labels.name_of.size:
        return False
    return fits_kernel(labels.pairs, more, more_bytes) and fits_kernel(labels.names, more, more_bytes)


@helper
def write_run_kernel(labels: Labels, ref: Any, data: NDArray[np.uint8], start: Any, end: Any) -> Any:
    """Intern the labels data[start:end] as those of ref. Returns how many; their pairs are the last entries."""
    runs = labels.runs
    first = runs.size[0]
    at, position = first, start
    while position < end:
        name_end = separator_kernel(data, position, end)
        value_end = separator_kernel(data, name_end + 1, end)
        known = labels.pairs.size[COUNT]
        pair = intern_kernel(labels.pairs, data, position, value_end)
        if pair == known:
            labels.name_of[pair] = intern_kernel(labels.names, data, position, name_end)
        runs.entries[at] = pair
        at += 1
        position = value_end + 1
    runs.start[ref], runs.length[ref], runs.label_bytes[ref] = first, at - first, end - start
    runs.size[0] = at
    return at - first


@kernel
def write_runs_kernel(
    labels: Labels, refs: NDArray[np.uint32], ends: NDArray[np.int64], data: NDArray[np.uint8], first: int
) -> int:
    """Intern canonical labels while the capacity lasts, from refs[first] on. The labels of refs[i] end at ends[i] of
    data.

    Returns the index of the first ref that does not fit, or the number of refs.

    """
    for index in range(first, refs.size):
        start = ends[index - 1] if index else np.int64(0)
        count = label_count_kernel(data, start, ends[index])
        if not has_capacity_kernel(labels, count, ends[index] - start):
            return index
        write_run_kernel(labels, refs[index], data, start, ends[index])
    return refs.size


@helper
def same_labels_kernel(labels: Labels, ref: Any, data: NDArray[np.uint8], start: Any, end: Any) -> bool:
    """Whether the labels of ref are data[start:end]."""
    runs, entries = labels.runs, labels.runs.entries
    known, known_ends = labels.pairs.data, labels.pairs.ends
    if np.int64(runs.label_bytes[ref]) != end - start:
        return False
    first, position = np.int64(runs.start[ref]), start
    for entry in range(first, first + np.int64(runs.length[ref])):
        pair = np.int64(entries[entry])
        pair_start = known_ends[pair - 1] if pair else np.int64(0)
        length = known_ends[pair] - pair_start
        # Labels with another text but the same total size may have a pair that is longer than the rest of these labels.
        if position + length > end or not equal_kernel(known, pair_start, data, position, length):
            return False
        position += length
        if position < end:
            if data[position] != SEPARATOR_BYTE:
                return False
            position += 1
    return True


@helper
def family_code_kernel(data: NDArray[np.uint8], start: Any, end: Any) -> Any:
    """(hash of the metric family) << 3 | number of the suffix, 32 bits, of the canonical labels data[start:end].

    The family is that of tsdb.model.placement.metric_family. The hash has no seed, so the slices of replicas have the
    same layout.
    """
    position = start
    while position < end:
        name_end = separator_kernel(data, position, end)
        value_end = separator_kernel(data, name_end + 1, end)
        if name_end - position == _METRIC_NAME.size and equal_kernel(
            _METRIC_NAME, 0, data, position, _METRIC_NAME.size
        ):
            return _family_code(data, name_end + 1, value_end)
        position = value_end + 1
    return _family_code(data, end, end)


@helper
def _family_code(data: NDArray[np.uint8], start: Any, end: Any) -> Any:
    family_end, code = family_end_kernel(data, start, end)
    hashed = np.int64(hash32_kernel(data, start, family_end, 0))
    return (hashed >> 3) << 3 | code


@helper
def family_end_kernel(data: NDArray[np.uint8], start: Any, end: Any) -> Any:
    """(end of the metric family of the name data[start:end], number of the suffix after it, 0 without a suffix)."""
    first = 0
    for number in range(_SUFFIX_ENDS.size):
        length = _SUFFIX_ENDS[number] - first
        if end - start > length and equal_kernel(_SUFFIXES, first, data, end - length, length):
            return end - length, number + 1
        first = _SUFFIX_ENDS[number]
    return end, 0
