"""Names of metrics: which results lose them, and what happens when labels are equal after that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.vectors.block import Block, Samples, counted
from tsdb.promql.evaluate.vectors.labels import METADATA, LabelSets

SAME_LABELS = "vector cannot contain metrics with the same labelset"


def without_name(context: EvaluationContext, block: Block) -> Block:
    """The block without names, or marked for that where names go at the end of the query. Raises EvaluationError."""
    if context.delays_name_removal:
        return replace(block, loses_name=np.ones(len(block), np.bool_))
    return merged(Block(block.labels.without(METADATA), block.values, block.present, block.loses_name))


def at_end(block: Block) -> Block:
    """The block without the names that are marked. Raises EvaluationError when labels are equal then."""
    if not block.loses_name.any():
        return merged(block)
    labels = _without_marked(block.labels, block.loses_name)
    return merged(replace(block, labels=labels, loses_name=np.zeros(len(block), np.bool_)))


def checked(context: EvaluationContext, block: Block) -> Block:
    """Merge series of equal labels in the block. Raises EvaluationError when that is impossible.

    Where names are removed at the end of the query, labels at a single time may be equal until then.

    """
    return block if context.delays_name_removal and context.start_ms == context.end_ms else merged(block)


def samples_at_end(samples: Samples) -> Samples:
    """Samples without the names that are marked."""
    return replace(samples, labels=_without_marked(samples.labels, samples.loses_name))


def _without_marked(labels: LabelSets, loses_name: NDArray[np.bool_]) -> LabelSets:
    for name in set(METADATA) & set(labels.names):
        labels = labels.with_column(name, np.where(loses_name, 0, labels.column(name)).astype(np.int32))
    return labels


def merged(block: Block) -> Block:
    """Merge series of equal labels. Raises EvaluationError when two of them are present at one step."""
    if block.labels.is_distinct:
        return block
    groups = block.labels.groups()
    if len(groups) == len(block):
        return block
    counts = counted(block.present, groups.of_row, len(groups))
    if counts.max() > 1:
        raise EvaluationError(SAME_LABELS)
    values = np.zeros(counts.shape)
    rows, steps = np.nonzero(block.present)
    values[groups.of_row[rows], steps] = block.values[rows, steps]
    return Block(block.labels.first_of(groups), values, counts > 0, block.loses_name[groups.first])
