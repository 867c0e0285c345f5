"""Labels: kernels that read the runs of many series at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import Array2, helper, kernel
from tsdb.codec.memory_kernels import load_u64, store_u64
from tsdb.index.interned_kernels import PADDING_BYTES, Interned, equal_kernel, hash_kernel
from tsdb.index.label_kernels import SEPARATOR_BYTE, Labels, family_end_kernel


@kernel
def join_labels_kernel(labels: Labels, refs: NDArray[np.uint32], out: NDArray[np.uint8]) -> int:
    """Canonical labels of refs one after another. Returns the bytes written.

    out has capacity for their label_bytes and PADDING_BYTES, because pairs are copied in whole blocks, most of them in
    one block.
    """
    runs_start, runs_length, entries = labels.runs.start, labels.runs.length, labels.runs.entries
    ends, data = labels.pairs.ends, labels.pairs.data
    position = 0
    for index in range(refs.size):
        first = np.int64(runs_start[refs[index]])
        for entry in range(first, first + np.int64(runs_length[refs[index]])):
            pair = np.int64(entries[entry])
            start = ends[pair - 1] if pair else np.int64(0)
            size = ends[pair] - start
            _copy_block(out, position, data, start)
            at = PADDING_BYTES
            while at < size:
                _copy_block(out, position + at, data, start + at)
                at += PADDING_BYTES
            position += size
            out[position] = SEPARATOR_BYTE
            position += 1
        position -= 1
    return position


@helper
def _copy_block(out: NDArray[np.uint8], position: Any, data: NDArray[np.uint8], start: Any) -> None:
    # All loads come before the first store, so that they become one wide move.
    first: Any = load_u64(data, start)
    second = load_u64(data, start + 8)
    third = load_u64(data, start + 16)
    fourth = load_u64(data, start + 24)
    store_u64(out, position, first)
    store_u64(out, position + 8, second)
    store_u64(out, position + 16, third)
    store_u64(out, position + 24, fourth)


@kernel
def pairs_by_name_kernel(
    labels: Labels, refs: NDArray[np.uint32], names: NDArray[np.uint32], out: Array2[np.uint32]
) -> None:
    """out (names, refs): the pair that each ref has of each name id; left as it is where it has none."""
    start, length, entries, name_of = labels.runs.start, labels.runs.length, labels.runs.entries, labels.name_of
    for index in range(refs.size):
        first = np.int64(start[refs[index]])
        for entry in range(first, first + np.int64(length[refs[index]])):
            pair = entries[entry]
            for column in range(names.size):
                if name_of[pair] == names[column]:
                    out[column, index] = pair


@kernel
def mark_pairs_kernel(labels: Labels, refs: NDArray[np.uint32], marks: NDArray[np.bool_]) -> None:
    """Set the mark of every pair that any of refs has."""
    start, length, entries = labels.runs.start, labels.runs.length, labels.runs.entries
    for index in range(refs.size):
        first = np.int64(start[refs[index]])
        for entry in range(first, first + np.int64(length[refs[index]])):
            marks[entries[entry]] = True


@kernel
def count_pairs_kernel(labels: Labels, refs: NDArray[np.uint32], counts: NDArray[np.uint32]) -> None:
    """Add to counts (pairs,) how many of refs have each pair."""
    start, length, entries = labels.runs.start, labels.runs.length, labels.runs.entries
    for index in range(refs.size):
        first = np.int64(start[refs[index]])
        for entry in range(first, first + np.int64(length[refs[index]])):
            counts[entries[entry]] += 1


@kernel
def hash_interned_kernel(
    interned: Interned, numbers: NDArray[np.uint32], seed: np.uint64, out: NDArray[np.uint64]
) -> None:
    """Fill out (n,) with the 64-bit hash of the bytes of each id. The hash is the same in every index that uses the
    seed."""
    ends, data = interned.ends, interned.data
    for index in range(numbers.size):
        number = np.int64(numbers[index])
        start = ends[number - 1] if number else np.int64(0)
        out[index] = hash_kernel(data, start, ends[number], seed)


@kernel
def hash_families_kernel(labels: Labels, pairs: NDArray[np.uint32], seed: np.uint64, out: NDArray[np.uint64]) -> None:
    """out (n,): 64-bit hash of the metric family of each pair, whose value is a metric name."""
    ends, data, name_of, name_ends = labels.pairs.ends, labels.pairs.data, labels.name_of, labels.names.ends
    for index in range(pairs.size):
        pair = np.int64(pairs[index])
        name = np.int64(name_of[pair])
        name_bytes = name_ends[name] - (name_ends[name - 1] if name else 0)
        start = (ends[pair - 1] if pair else np.int64(0)) + name_bytes + 1
        out[index] = hash_kernel(data, start, family_end_kernel(data, start, ends[pair])[0], seed)


@kernel
def filter_kernel(
    labels: Labels, refs: NDArray[np.uint32], marks: NDArray[np.bool_], keep: bool, out: NDArray[np.uint32]
) -> int:
    """Refs that have a marked pair (keep) or have none (not keep), in order. Returns how many."""
    start, length, entries = labels.runs.start, labels.runs.length, labels.runs.entries
    count = 0
    for index in range(refs.size):
        first = np.int64(start[refs[index]])
        found = False
        for entry in range(first, first + np.int64(length[refs[index]])):
            if marks[entries[entry]]:
                found = True
                break
        if found == keep:
            out[count] = refs[index]
            count += 1
    return count


@kernel
def prefix_kernel(
    labels: Labels, pairs: NDArray[np.uint32], prefix: NDArray[np.uint8], more_min: int, out: NDArray[np.uint32]
) -> int:
    """Pairs whose value begins with a prefix and is at least more_min bytes longer, in order. Returns how many."""
    data, ends, name_of, name_ends = labels.pairs.data, labels.pairs.ends, labels.name_of, labels.names.ends
    count = 0
    for index in range(pairs.size):
        pair = np.int64(pairs[index])
        name = np.int64(name_of[pair])
        name_bytes = name_ends[name] - (name_ends[name - 1] if name else 0)
        start = (ends[pair - 1] if pair else 0) + name_bytes + 1
        if ends[pair] - start < prefix.size + more_min:
            continue
        if equal_kernel(data, start, prefix, 0, prefix.size):
            out[count] = pair
            count += 1
    return count
