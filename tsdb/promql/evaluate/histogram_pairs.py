"""Binary operators on pairs of samples of which some are histograms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tsdb.model.histograms import GAUGE
from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.elementwise import ARITHMETIC, COMPARE
from tsdb.promql.evaluate.native.combine_kernels import COLLISION, RECONCILED_ADDITION, RECONCILED_SUBTRACTION
from tsdb.promql.evaluate.native.histograms import HistogramCells, NativeHistograms, joined_natives
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.syntax.tree import COMPARISONS, Binary

TRIMS = frozenset({"</", ">/"})  # Operators of native histograms.
_WORDS = {"+": "addition", "-": "subtraction"}
_KINDS = ("float", "histogram")
_TYPES, _LAYOUT, _COLLISION, _RECONCILED = 1, 5, 6, 7  # Problems of a pair. _TYPES and the next three: of both kinds.


def inform_of_types(context: EvaluationContext, node: Binary, left: str, right: str) -> None:
    """Inform that an operator has no meaning for these kinds of samples."""
    problem = f'incompatible sample types encountered for binary operator "{node.operator}": '
    context.annotations.inform(f"{problem}{left} {node.operator} {right}", node.span)


def numbered(shape: tuple[int, ...], rows: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Indexes of histograms that lie at these cells in their order; -1 elsewhere."""
    of = np.full(shape, -1, np.int64)
    of[rows, steps] = np.arange(len(rows))
    return of


def scaled(histograms: NativeHistograms, operator: str, by: NDArray[np.float64]) -> NativeHistograms:
    """The histograms times or over numbers, or trimmed at them."""
    if operator == "*":
        return histograms.times(by)
    if operator == "/":
        return histograms.over(by)
    return histograms.trimmed(by, is_upper=operator == "</")


def pairs_of_histograms(
    context: EvaluationContext, node: Binary, left: Block, right: Block, present: NDArray[np.bool_]
) -> tuple[Block, NDArray[np.bool_]]:
    """(results of the pairs of cells that are present, whether the operator has a meaning for a pair). A comparison
    leaves out results of pairs for which it has. Labels and names are those of the left block."""
    operator = node.operator
    is_left, is_right = left.is_histogram & present, right.is_histogram & present
    kinds = 2 * is_left + is_right.astype(np.int64)  # 0: floats, 1: a histogram at the right, 2: left, 3: both.
    good = present & np.isin(kinds, _kinds_of(operator))
    problem = np.where(present & ~good, _TYPES + kinds, 0)
    values = left.values
    if operator in ARITHMETIC:
        values = ARITHMETIC[operator](left.values, right.values)
    elif operator in COMPARISONS:
        holds = COMPARE[operator](left.values, right.values)
        rows, steps = np.nonzero(good & (kinds == 3))
        if len(rows):
            pool, one, other = _pair(left, right, rows, steps)
            holds[rows, steps] = pool.are_equal(one, other) == (operator == "==")
        _annotate(context, node, problem)
        if node.returns_bool:
            return Block(left.labels, holds.astype(np.float64), good, left.loses_name), good
        return replace(left, present=good & holds), good
    parts: list[NativeHistograms] = []
    of = np.full(present.shape, -1, np.int64)
    for kind, block, numbers in ((1, right, left.values), (2, left, right.values)):
        rows, steps = np.nonzero(good & (kinds == kind))
        if len(rows) and block.native is not None:
            of[rows, steps] = sum(map(len, parts)) + np.arange(len(rows))
            parts.append(
                scaled(block.native.histograms.take(block.native.of[rows, steps]), operator, numbers[rows, steps])
            )
    rows, steps = np.nonzero(good & (kinds == 3))
    if len(rows):
        of[rows, steps] = sum(map(len, parts)) + np.arange(len(rows))
        found, of_pairs = _added(context, left, right, (rows, steps), operator)
        problem[rows, steps] = of_pairs
        good[rows, steps] &= ~np.isin(of_pairs, (_LAYOUT, _COLLISION))
        parts.append(found)
    _annotate(context, node, problem)
    native = HistogramCells(joined_natives(parts), of) if parts else None
    return Block(left.labels, values, good, left.loses_name, native), good


def _kinds_of(operator: str) -> tuple[int, ...]:
    """The kinds of pairs for which an operator has a meaning."""
    if operator in TRIMS:
        return (2,)
    return {"*": (0, 1, 2), "/": (0, 2), "+": (0, 3), "-": (0, 3), "==": (0, 3), "!=": (0, 3)}.get(operator, (0,))


def _pair(
    left: Block, right: Block, rows: NDArray[np.int64], steps: NDArray[np.int64]
) -> tuple[NativeHistograms, NDArray[np.int64], NDArray[np.int64]]:
    """(histograms of both sides, those of the left cells, those of the right cells)."""
    assert left.native is not None, "the pairs have histograms on both sides"
    assert right.native is not None, "the pairs have histograms on both sides"
    pool = joined_natives([left.native.histograms, right.native.histograms])
    return pool, left.native.of[rows, steps], right.native.of[rows, steps] + len(left.native.histograms)


def _added(
    context: EvaluationContext,
    left: Block,
    right: Block,
    cells: tuple[NDArray[np.int64], NDArray[np.int64]],
    operator: str,
) -> tuple[NativeHistograms, NDArray[np.int64]]:
    """The sum or difference of each pair, and its problem."""
    rows, steps = cells
    pool, one, other = _pair(left, right, rows, steps)
    members = np.stack((one, other), axis=1).reshape(-1)
    weights = np.tile((1.0, 1.0 if operator == "+" else -1.0), len(rows))
    starts = np.arange(0, 2 * len(rows) + 1, 2)
    found = pool.combined(starts, members, weights, admit=context.in_hand.admit)
    problem = np.where(found.flags & (RECONCILED_ADDITION | RECONCILED_SUBTRACTION), _RECONCILED, 0)
    problem[(found.flags & COLLISION) > 0] = _COLLISION
    problem[found.failed >= 0] = _LAYOUT
    return found.histograms if operator == "+" else found.histograms.with_hint(GAUGE), problem


def _annotate(context: EvaluationContext, node: Binary, problem: NDArray[np.int64]) -> None:
    """As in Prometheus, a step reports the problem of its last pair that has one."""
    if not problem.any():
        return
    last = len(problem) - 1 - np.argmax(problem[::-1] != 0, axis=0)
    for code in np.unique(problem[last, np.arange(problem.shape[1])]).tolist():
        if _TYPES <= code < _LAYOUT:
            left, right = divmod(code - _TYPES, 2)
            inform_of_types(context, node, _KINDS[left], _KINDS[right])
        elif code == _LAYOUT:
            problem_text = f"incompatible bucket layout encountered for binary operator {node.operator}"
            context.annotations.warn(problem_text, node.span)
        elif code == _COLLISION:
            word = _WORDS[node.operator]
            context.annotations.warn(f"conflicting counter resets during histogram {word}", node.span)
        elif code == _RECONCILED:
            word = _WORDS[node.operator]
            context.annotations.inform(f"mismatched custom buckets were reconciled during {word}", node.span)
