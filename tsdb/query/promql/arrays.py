"""Arrays of one selection: decodes the partitions of its answer and joins them in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.client.answer.frames import PartitionFrames
from tsdb.client.select import joined_result
from tsdb.client.wire import malformed
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.query.join.partition_join import JoinedSamples

SAMPLE_BYTES = 16

Admit = Callable[[int], None]
"""Raises when the bytes are not available."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """Partitions that each come once: as frames of stores, or joined from memory and history."""

    framed: Sequence[PartitionFrames]
    joined: Sequence[JoinedSamples]

    def check(self, wanted: Sequence[int]) -> None:
        """Raises CorruptData (answer_malformed) unless exactly the partitions `wanted` have come, each once."""
        came = sorted([part.block.partition for part in self.framed] + [one.partition for one in self.joined])
        if came != sorted(wanted):
            raise malformed(f"partitions {came} came; partitions {sorted(wanted)} were requested")

    def stored(self, start_ms: int, end_ms: int, admit: Admit) -> StoredSeries:
        """The samples in [start_ms, end_ms), series by partition and series id; series without samples are left out.

        admit: called with the bytes of all samples here, before more are allocated. Raises CorruptData for frames that
        contradict each other.
        """
        if self.joined:
            return self._combined(start_ms, end_ms, admit)
        result = joined_result(self.framed, (), start_ms, end_ms, admit)
        return StoredSeries(result.canonical, result.starts, result.ts_ms, result.values)

    def _combined(self, start_ms: int, end_ms: int, admit: Admit) -> StoredSeries:
        """Decodes partition by partition: the order of series must not depend on where their samples were."""
        blocks = {one.partition: _joined_block(one) for one in self.joined}
        taken = SAMPLE_BYTES * sum(len(block.ts_ms) for block in blocks.values())
        for part in self.framed:
            blocks[part.block.partition] = block = _framed_block(part, start_ms, end_ms, taken, admit)
            taken += SAMPLE_BYTES * len(block.ts_ms)
        admit(2 * taken)
        ordered = [blocks[partition] for partition in sorted(blocks)]
        counts = np.concatenate([block.counts for block in ordered])
        return StoredSeries(
            [labels for block in ordered for labels in block.labels],
            np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]),
            np.concatenate([block.ts_ms for block in ordered]),
            np.concatenate([block.values for block in ordered]),
        )


@dataclass(frozen=True, slots=True)
class _Block:
    """Series of one partition that have samples. counts: int64 (s,), samples of each."""

    labels: Sequence[bytes]
    counts: NDArray[np.int64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]


def _joined_block(joined: JoinedSamples) -> _Block:
    kept = np.flatnonzero(joined.raw.counts)
    labels = [joined.labels[index] for index in kept.tolist()]
    return _Block(labels, joined.raw.counts[kept].astype(np.int64), joined.raw.ts_ms, joined.raw.values)


def _framed_block(part: PartitionFrames, start_ms: int, end_ms: int, taken: int, admit: Admit) -> _Block:
    result = joined_result([part], (), start_ms, end_ms, lambda size: admit(taken + size))
    return _Block(result.canonical, np.diff(result.starts), result.ts_ms, result.values)
