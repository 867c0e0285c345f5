"""Binary operators: compute on numbers, on a vector and a number, and on vectors whose labels match."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.elementwise import ARITHMETIC, COMPARE
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.histogram_pairs import TRIMS, inform_of_types, numbered, pairs_of_histograms, scaled
from tsdb.promql.evaluate.native.histograms import HistogramCells
from tsdb.promql.evaluate.vectors.block import Block, Scalar, counted, stacked
from tsdb.promql.evaluate.vectors.labels import METADATA, METRIC_NAME, LabelSets, are_distinct, group_starts, joined
from tsdb.promql.syntax.tree import COMPARISONS, Binary, MatchCardinality, Matching
from tsdb.selector.tokens import PLAIN_LABEL, quoted

Values = NDArray[np.float64]
MANY_SIDE = "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
ONE_SIDE = "multiple matches for labels: grouping labels must ensure unique matches"


def scalars(node: Binary, left: Scalar, right: Scalar) -> Scalar:
    """The result for two scalars: a number at each step."""
    if node.operator in COMPARISONS:
        return Scalar(COMPARE[node.operator](left.values, right.values).astype(np.float64))
    if node.operator in TRIMS:
        raise EvaluationError(f'operator "{node.operator}" not allowed for Scalar operations')
    return Scalar(ARITHMETIC[node.operator](left.values, right.values))


def negated(block: Block) -> Block:
    """The values times -1, with the names of the series."""
    if block.native is None:
        return block.with_values(-block.values)
    histograms = block.native.histograms
    native = replace(block.native, source=histograms.times(np.full(len(histograms), -1.0)))
    return replace(block, values=-block.values, native=native)


def with_scalar(
    context: EvaluationContext, node: Binary, vector: Block, scalar: Scalar, *, scalar_is_left: bool
) -> Block:
    """A comparison without `bool` filters the vector; everything else gives new values."""
    if vector.native is not None:
        return _histograms_with_scalar(context, node, vector, scalar, scalar_is_left=scalar_is_left)
    pair = (scalar.values, vector.values) if scalar_is_left else (vector.values, scalar.values)
    if node.operator in TRIMS:
        return _refuse_trim(context, node, vector)
    if node.operator not in COMPARISONS:
        return context.without_name(vector.with_values(ARITHMETIC[node.operator](*pair)))
    holds = COMPARE[node.operator](*pair)
    if node.returns_bool:
        return context.without_name(vector.with_values(holds.astype(np.float64)))
    return vector.with_present(vector.present & holds)


def _refuse_trim(context: EvaluationContext, node: Binary, block: Block) -> Block:
    if block.present.any():
        inform_of_types(context, node, "float", "float")
    return block.take(np.zeros(0, np.int64))


def _histograms_with_scalar(
    context: EvaluationContext, node: Binary, vector: Block, scalar: Scalar, *, scalar_is_left: bool
) -> Block:
    is_histogram = vector.is_histogram
    operator = node.operator
    takes_histograms = operator == "*" or (not scalar_is_left and (operator == "/" or operator in TRIMS))
    if not takes_histograms:
        if is_histogram.any():
            kinds = ("float", "histogram") if scalar_is_left else ("histogram", "float")
            inform_of_types(context, node, *kinds)
        return with_scalar(context, node, vector.floats(), scalar, scalar_is_left=scalar_is_left)
    assert vector.native is not None, "vectors of floats have another way"
    rows, steps = np.nonzero(is_histogram)
    made = scaled(vector.native.histograms.take(vector.native.of[rows, steps]), operator, scalar.values[steps])
    present, values = vector.present, vector.values
    if operator in TRIMS:
        if (present & ~is_histogram).any():
            inform_of_types(context, node, "float", "float")
        present = is_histogram
    else:
        values = ARITHMETIC[operator](values, scalar.values)
    native = HistogramCells(made, numbered(vector.values.shape, rows, steps))
    result = replace(vector, values=values, present=present, native=native).compact()
    return result if operator in TRIMS else context.without_name(result)


@dataclass(frozen=True, slots=True)
class Sides:
    """Two vectors with the group of each of their rows. Rows of one group match."""

    left: Block
    right: Block
    left_group: NDArray[np.int64]
    right_group: NDArray[np.int64]
    groups: int
    keys: LabelSets  # Keys of the groups.


def vectors(context: EvaluationContext, node: Binary, left: Block, right: Block) -> Block:
    """Apply an operator to series whose labels match. Raises EvaluationError where more series match than the query
    allows.
    """
    sides = _sides(node.matching, left, right)
    match node.operator:
        case "and":
            return left.with_present(left.present & _any(sides.right_group, right, sides.groups)[sides.left_group])
        case "unless":
            return left.with_present(left.present & ~_any(sides.right_group, right, sides.groups)[sides.left_group])
        case "or":
            rest = right.present & ~_any(sides.left_group, left, sides.groups)[sides.right_group]
            both = stacked((left, replace(right, present=rest))).compact()
            return context.checked(both)
    return _matched(context, node, _filled(node.matching, sides))


def _sides(matching: Matching, left: Block, right: Block) -> Sides:
    def key(labels: LabelSets) -> LabelSets:
        return labels.only(matching.labels) if matching.on else labels.without((*matching.labels, METRIC_NAME))

    keys = joined(key(left.labels), key(right.labels))
    groups = keys.groups()
    middle = len(left)
    return Sides(left, right, groups.of_row[:middle], groups.of_row[middle:], len(groups), keys.first_of(groups))


def _any(group: NDArray[np.int64], block: Block, groups: int) -> NDArray[np.bool_]:
    """Whether a group has a series at each step, bool (groups, steps)."""
    found = np.zeros((groups, block.steps), np.bool_)
    if len(block) == groups and are_distinct(group):
        found[group] = block.present
    else:
        np.logical_or.at(found, group, block.present)
    return found


def _matched(context: EvaluationContext, node: Binary, sides: Sides) -> Block:
    matching = node.matching
    swapped = matching.cardinality is MatchCardinality.ONE_TO_MANY
    one, many = (sides.left, sides.right) if swapped else (sides.right, sides.left)
    one_group, many_group = (sides.left_group, sides.right_group) if swapped else (sides.right_group, sides.left_group)
    # A step at which one side has no series has no result. Prometheus finds no error there unless a side is filled.
    has_left, has_right = sides.left.present.any(axis=0), sides.right.present.any(axis=0)
    used = has_left | has_right if matching.fills else has_left & has_right
    one, many = replace(one, present=one.present & used), replace(many, present=many.present & used)
    problem = _one_side_problem(one, one_group, sides, "left" if swapped else "right")
    if problem is not None:
        # Prometheus works step by step, so an error of the other side at an earlier step comes first.
        earlier = np.arange(many.steps) < problem[0]
        one, many = replace(one, present=one.present & earlier), replace(many, present=many.present & earlier)
    many_rows, one_rows = _pairs(context, many_group, one_group, sides)
    many, one = many.take(many_rows), one.take(one_rows)
    left, right = (one, many) if swapped else (many, one)
    present = left.present & right.present
    pair_group = many_group[many_rows]
    labels = _result_labels(context, node, many.labels, one.labels)
    loses_name = np.full(len(labels), node.returns_bool and context.delays_name_removal)
    of_histograms, answered = None, present
    if left.native is not None or right.native is not None:
        of_histograms, answered = pairs_of_histograms(context, node, left, right, present)
    elif node.operator in TRIMS:
        answered = np.zeros_like(present)
    _check_many_side(matching, pair_group, answered, sides.groups, labels)
    if problem is not None:
        raise problem[1]
    if of_histograms is not None:
        return context.checked(replace(of_histograms, labels=labels, loses_name=loses_name).compact())
    if node.operator in TRIMS:
        return _refuse_trim(context, node, Block(labels, left.values, present, loses_name))
    if node.operator in COMPARISONS:
        holds = COMPARE[node.operator](left.values, right.values)
        values = holds.astype(np.float64) if node.returns_bool else left.values
        present = present if node.returns_bool else present & holds
    else:
        values = ARITHMETIC[node.operator](left.values, right.values)
    return context.checked(Block(labels, values, present, loses_name).compact())


def _pairs(
    context: EvaluationContext, many_group: NDArray[np.int64], one_group: NDArray[np.int64], sides: Sides
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows (many, one) of all pairs in one group, in the order of the many side."""
    order = np.argsort(one_group, kind="stable")
    starts = group_starts(one_group, sides.groups)
    repeats = np.diff(starts)[many_group]
    context.admit(int(repeats.sum()), sides.left.steps)
    many_rows = np.repeat(np.arange(len(many_group)), repeats)
    place = np.arange(len(many_rows)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return many_rows, order[starts[many_group[many_rows]] + place]


def _one_side_problem(
    one: Block, group: NDArray[np.int64], sides: Sides, side: str
) -> tuple[int, EvaluationError] | None:
    """The first step at which two series of the one side match the same, with the error."""
    if are_distinct(group):
        return None
    counts = counted(one.present, group, sides.groups)
    if counts.max(initial=0) <= 1:
        return None
    step = int(np.nonzero(counts.max(axis=0) > 1)[0][0])
    here = np.flatnonzero(one.present[:, step])
    # The first series whose group another series already has, in the order of the vector.
    firsts = here[np.unique(group[here], return_index=True)[1]]
    second = next(row for row in here.tolist() if row not in firsts)
    bad = int(group[second])
    rows = np.array([second, int(here[group[here] == bad][0])])
    rows = rows[one.labels.take(rows).order()]
    shown = ", ".join(shown_labels(one.labels.row(row)) for row in rows.tolist())
    group_labels = shown_labels(sides.keys.row(bad))
    return step, EvaluationError(
        f"found duplicate series for the match group {group_labels} on the {side} hand-side of the operation: "
        f"[{shown}];many-to-many matching not allowed: matching labels must be unique on one side"
    )


def _check_many_side(
    matching: Matching, group: NDArray[np.int64], present: NDArray[np.bool_], groups: int, labels: LabelSets
) -> None:
    """Check that there is one result for each group, or for each group and set of labels. Results that a comparison
    leaves out count too, pairs for which the operator has no meaning do not."""
    if are_distinct(group):
        return
    if matching.cardinality is MatchCardinality.ONE_TO_ONE:
        if counted(present, group, groups).max(initial=0) > 1:
            raise EvaluationError(MANY_SIDE)
        return
    results = labels.groups()
    if len(results) == len(labels):
        return
    keys, key_of = np.unique(results.of_row * groups + group, return_inverse=True)
    if counted(present, key_of.reshape(-1), len(keys)).max(initial=0) > 1:
        raise EvaluationError(ONE_SIDE)


def _result_labels(context: EvaluationContext, node: Binary, many: LabelSets, one: LabelSets) -> LabelSets:
    matching = node.matching
    labels = many
    if node.operator in ARITHMETIC or (node.returns_bool and not context.delays_name_removal):
        labels = labels.without(METADATA)
    if matching.cardinality is MatchCardinality.ONE_TO_ONE:
        return labels.only(matching.labels) if matching.on else labels.without(matching.labels)
    for name in matching.include:
        labels = labels.with_column(name, one.column(name))
    return labels


def _filled(matching: Matching, sides: Sides) -> Sides:
    """Both sides with a series of the fill value for each group that lacks one."""
    if not matching.fills:
        return sides
    has_left = _any(sides.left_group, sides.left, sides.groups)
    has_right = _any(sides.right_group, sides.right, sides.groups)
    left, left_group, right, right_group = sides.left, sides.left_group, sides.right, sides.right_group
    fill_left, fill_right = matching.fill_left, matching.fill_right
    if matching.cardinality is MatchCardinality.ONE_TO_MANY:
        # Prometheus swaps the sides of group_right before it fills them: its left is the side with many series.
        fill_left, fill_right = fill_right, fill_left
    if fill_left is not None:
        left, left_group = _with_fill(left, left_group, sides, has_right & ~has_left, fill_left)
    if fill_right is not None:
        right, right_group = _with_fill(right, right_group, sides, has_left & ~has_right, fill_right)
    return Sides(left, right, left_group, right_group, sides.groups, sides.keys)


def _with_fill(
    block: Block, group: NDArray[np.int64], sides: Sides, missing: NDArray[np.bool_], value: float
) -> tuple[Block, NDArray[np.int64]]:
    groups = np.flatnonzero(missing.any(axis=1))
    fill = Block(
        sides.keys.take(groups),
        np.full((len(groups), block.steps), value),
        missing[groups],
        np.zeros(len(groups), np.bool_),
    )
    return stacked((block, fill)), np.concatenate((group, groups))


def shown_labels(labels: dict[str, str]) -> str:
    """Labels as Prometheus's errors have them: `{__name__="x", a="b"}`."""
    pairs = (
        f"{name if PLAIN_LABEL.fullmatch(name) else quoted(name)}={quoted(value)}" for name, value in labels.items()
    )
    return f"{{{', '.join(pairs)}}}"
