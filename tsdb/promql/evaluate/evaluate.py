"""Evaluates an expression: each node over all its steps, after its parts.

A function that returns a Step is a step of a recursion (`syntax.tree.result_of`): an expression may be nested deeper
than Python's stack.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tsdb.promql.evaluate.binary import negated, scalars, vectors, with_scalar
from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.functions import BODIES, OfFirst, OfTexts, OfValues, check_extension
from tsdb.promql.evaluate.groups.aggregate import aggregated, check_label, counted_values
from tsdb.promql.evaluate.ranges.range_functions import OverRange, over_range, visits
from tsdb.promql.evaluate.selection.select import (
    Ranges,
    as_samples,
    newest,
    no_samples,
    selected,
    shifted_times,
)
from tsdb.promql.evaluate.vectors.block import Block, Scalar, Text
from tsdb.promql.syntax.tree import (
    Aggregation,
    Binary,
    Call,
    Expression,
    MatrixSelector,
    NumberLiteral,
    Paren,
    Step,
    StringLiteral,
    Subquery,
    Unary,
    VectorSelector,
    post_order,
    result_of,
    without_parens,
)

Value = Block | Scalar | Text
SAMPLE_BYTES = 16


def evaluate(context: EvaluationContext, node: Expression) -> Value:
    """The value of an expression that is not a range.

    Raises EvaluationError, what the storage raises, and what the memory in hand raises.
    """
    return result_of(_evaluated(context, node))


def range_of(context: EvaluationContext, node: Expression) -> Ranges:
    """The samples of a range at each step. Raises the errors of `evaluate`."""
    return result_of(_range_of(context, node))


def _evaluated(context: EvaluationContext, node: Expression) -> Step[Value]:
    context.check()
    before = context.in_hand.bytes
    value: Value
    if context.steps > 1 and context.is_fixed(node):
        once: Value = yield _evaluated(context.at(context.start_ms, context.start_ms, context.step_ms), node)
        value = _repeated(context, once)
    else:
        found = _value(context, node)
        value = found if isinstance(found, Block | Scalar | Text) else (yield found)
    context.in_hand.replace(before, value.nbytes)
    return value


def _value(context: EvaluationContext, node: Expression) -> Value | Step[Value]:
    match node:
        case NumberLiteral():
            return Scalar(np.full(context.steps, node.value))
        case StringLiteral():
            return Text(node.value)
        case Paren():
            return _evaluated(context, node.inner)
        case VectorSelector():
            return newest(context, node)
        case Unary():
            return _unary(context, node)
        case Binary():
            return _binary(context, node)
        case Aggregation():
            return _aggregation(context, node)
        case Call():
            return _call(context, node)
        case MatrixSelector() | Subquery():
            raise AssertionError("a range is an argument of a function, as the parser checks")


def _range_of(context: EvaluationContext, node: Expression) -> Step[Ranges]:
    node = without_parens(node)
    if isinstance(node, MatrixSelector):
        return selected(context, node)
    assert isinstance(node, Subquery), "the parser checks types"
    ranges: Ranges = yield _subquery(context, node)
    return ranges


def _subquery(context: EvaluationContext, node: Subquery) -> Step[Ranges]:
    range_ms = context.length_ms(node.range)
    # A step below a millisecond counts as no step.
    step_ms = (0 if node.step is None else context.length_ms(node.step)) or context.subquery_step_ms
    at_ms = shifted_times(context, node)
    # Steps of a subquery are multiples of its step, whatever the times of the query.
    start_ms = ((int(at_ms.min()) - range_ms) // step_ms + 1) * step_ms
    if start_ms > at_ms.max():
        return Ranges(no_samples(context.pool), at_ms, range_ms, range_ms, 0)
    inner = context.at(start_ms, int(at_ms.max()), step_ms)
    visited = visits(inner.steps, context, range_ms)
    nodes = post_order(node.expression)
    reads = any(isinstance(one, VectorSelector) for one in nodes)
    # The work is checked before the values are computed. The subquery reads no samples, which would allow more work.
    if not reads:
        context.subqueries.add(len(nodes) * inner.steps + visited)
    before = context.in_hand.bytes
    block: Value = yield _evaluated(inner, node.expression)
    assert isinstance(block, Block), "the parser checks types"
    context.subqueries.add((len(block) if reads else len(block) - 1) * visited)
    context.in_hand.admit(SAMPLE_BYTES * block.values.size)
    samples = as_samples(block, inner.times_ms)
    if samples.native is not None:
        # The steps of a subquery leave samples out or repeat them, so their hints say nothing of resets between them.
        native = replace(samples.native, source=samples.native.histograms.without_resets())
        samples = replace(samples, native=native)
    context.in_hand.replace(before, samples.nbytes)
    return Ranges(samples, at_ms, range_ms, range_ms, 0)


def _unary(context: EvaluationContext, node: Unary) -> Step[Value]:
    value: Value = yield _evaluated(context, node.operand)
    if node.operator == "+" or isinstance(value, Text):
        return value
    if isinstance(value, Scalar):
        return Scalar(-value.values)
    return context.without_name(negated(value))


def _binary(context: EvaluationContext, node: Binary) -> Step[Value]:
    """A chain of operators from its first operand on, so that it takes the memory of one operation."""
    before = context.in_hand.bytes
    chain, first = [node], node.left
    while isinstance(first, Binary) and not (context.steps > 1 and context.is_fixed(first)):
        chain.append(first)
        first = first.left
    value: Value = yield _evaluated(context, first)
    while chain:
        operation = chain.pop()
        right: Value = yield _evaluated(context, operation.right)
        value = _operated(context, operation, value, right)
        context.in_hand.replace(before, value.nbytes)
    return value


def _operated(context: EvaluationContext, node: Binary, left: Value, right: Value) -> Value:
    assert not isinstance(left, Text), "the parser checks types"
    assert not isinstance(right, Text), "the parser checks types"
    if isinstance(left, Scalar):
        if isinstance(right, Scalar):
            return scalars(node, left, right)
        return with_scalar(context, node, right, left, scalar_is_left=True)
    if isinstance(right, Scalar):
        return with_scalar(context, node, left, right, scalar_is_left=False)
    return vectors(context, node, left, right)


def _aggregation(context: EvaluationContext, node: Aggregation) -> Step[Value]:
    parameter: Value = Scalar(np.zeros(context.steps))
    if node.parameter is not None:
        parameter = yield _evaluated(context, node.parameter)
    if isinstance(parameter, Text):
        check_label(parameter.value)
    block: Value = yield _evaluated(context, node.operand)
    assert isinstance(block, Block), "the parser checks types"
    if isinstance(parameter, Text):
        return counted_values(context, node, block, parameter.value)
    assert isinstance(parameter, Scalar), "the parser checks types"
    return aggregated(context, node, block, parameter.values)


def _call(context: EvaluationContext, node: Call) -> Step[Value]:
    match BODIES[node.name]:
        case OverRange() as body:
            over: Block = yield _over_range(context, node, body)
            return over
        case OfFirst(value):
            first: Value = yield _evaluated(context, node.args[0])
            assert isinstance(first, Block), "the parser checks types"
            return value(context, node, first)
        case OfTexts(relabel):
            texts: list[Value] = []
            for argument in node.args[1:]:
                texts.append((yield _evaluated(context, argument)))
            change = relabel([text.value for text in texts if isinstance(text, Text)])
            block: Value = yield _evaluated(context, node.args[0])
            assert isinstance(block, Block), "the parser checks types"
            return change(context, block)
        case OfValues(value, of_selector):
            if of_selector is not None and isinstance(selector := without_parens(node.args[0]), VectorSelector):
                return of_selector(context, selector)
            values: list[Value] = []
            for argument in node.args:
                values.append((yield _evaluated(context, argument)))
            return value(context, node, values)


def _over_range(context: EvaluationContext, node: Call, body: OverRange) -> Step[Block]:
    parameters: list[Scalar] = []
    found: Ranges | None = None
    for argument in node.args:
        if isinstance(without_parens(argument), MatrixSelector | Subquery):
            found = yield _range_of(context, argument)
        else:
            value: Value = yield _evaluated(context, argument)
            assert isinstance(value, Scalar), "the parser checks types"
            parameters.append(value)
    assert found is not None, "the parser checks types"
    check_extension(node, body, found.extension)
    return over_range(context, node, body, found, parameters)


def _repeated(context: EvaluationContext, value: Value) -> Value:
    steps = context.steps
    if isinstance(value, Text):
        return value
    if isinstance(value, Scalar):
        return Scalar(np.repeat(value.values, steps))
    context.admit(len(value), steps)
    return replace(
        value,
        values=np.repeat(value.values, steps, axis=1),
        present=np.repeat(value.present, steps, axis=1),
        native=value.native and replace(value.native, of=np.repeat(value.native.of, steps, axis=1)),
    )
