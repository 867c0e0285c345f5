"""info(): adds labels of info metrics to the series of the same instance and job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tsdb.model.selector import Matcher, MatchType
from tsdb.promql.evaluate.binary import shown_labels
from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.selection.select import newest_with_times, shifted_times
from tsdb.promql.evaluate.vectors.block import Block, stacked
from tsdb.promql.evaluate.vectors.labels import METRIC_NAME, LabelSets, label_sets
from tsdb.promql.syntax.check import type_of
from tsdb.promql.syntax.tree import Call, Expression, Subquery, ValueType, VectorSelector, children
from tsdb.selector.pattern import PATTERN_BYTES_MAX
from tsdb.selector.selectors import matches, matches_empty

TARGET_INFO = "target_info"
_IDENTIFYING = ("instance", "job")
_VECTORS = (ValueType.VECTOR, ValueType.MATRIX)
UTF8_BYTES_MAX = 4  # Bytes of one character.
_EXCLUDING = (MatchType.NOT_EQUAL, MatchType.NOT_REGEX)


def with_info(context: EvaluationContext, node: Call, base: Block) -> Block:
    """The base series with labels of the newest info series. Raises EvaluationError where two of them differ."""
    matchers = node.args[1].matchers if len(node.args) > 1 and isinstance(node.args[1], VectorSelector) else ()
    of_name = [matcher for matcher in matchers if matcher.name == METRIC_NAME]
    of_data = [matcher for matcher in matchers if matcher.name != METRIC_NAME]
    is_named = of_name or [Matcher(MatchType.EQUAL, METRIC_NAME, TARGET_INFO)]
    if all(matcher.type in _EXCLUDING for matcher in is_named):
        is_named = [Matcher(MatchType.REGEX, METRIC_NAME, ".+_info"), *of_name]
    # A base series that is itself an info series stays unchanged.
    names = base.labels.texts(METRIC_NAME)
    is_info = np.array([_match_all(is_named, name) for name in names], np.bool_)
    parts = [
        newest_with_times(context, VectorSelector("", (*is_named, *identity, *of_data), node.span), at_ms)
        for at_ms in [_info_times(context, node.args[0])]
        for identity in _identities(base.labels, is_info)
    ]
    if any(block.is_histogram.any() for block, _ in parts):
        raise EvaluationError("info sample should be float")
    return _combined(context, base, is_info, _joined(parts), of_data)


def _identities(labels: LabelSets, is_info: NDArray[np.bool_]) -> Iterator[tuple[Matcher, ...]]:
    """Matchers of the info series of all base series: one set for each choice of identifying labels that these have."""
    values: dict[tuple[bool, ...], list[set[str]]] = {}
    columns = [labels.texts(name) for name in _IDENTIFYING]
    for row in np.flatnonzero(~is_info).tolist():
        texts = [column[row] for column in columns]
        if any(texts):
            of_choice = values.setdefault(tuple(map(bool, texts)), [set() for _ in _IDENTIFYING])
            for found, text in zip(of_choice, texts, strict=True):
                found.add(text)
    for choice in sorted(values):
        yield tuple(map(_one_of, _IDENTIFYING, values[choice]))


def _one_of(name: str, values: set[str]) -> Matcher:
    if values == {""}:
        return Matcher(MatchType.EQUAL, name, "")
    pattern = "|".join(map(_escaped, sorted(values)))
    # A wider selection does no harm, because the join takes info series by identity.
    is_too_long = len(pattern) > PATTERN_BYTES_MAX // UTF8_BYTES_MAX
    return Matcher(MatchType.REGEX, name, ".+" if is_too_long else pattern)


def _joined(parts: list[tuple[Block, NDArray[np.int64]]]) -> tuple[Block, NDArray[np.int64]] | None:
    if len(parts) <= 1:
        return parts[0] if parts else None
    return stacked([block for block, _ in parts]), np.concatenate([times_ms for _, times_ms in parts])


def _info_times(context: EvaluationContext, base: Expression) -> NDArray[np.int64]:
    """The times at which info series are read. They are the times of the base's selectors when these are all equal,
    otherwise the times of the steps."""
    own = context.times_ms
    references: list[tuple[bool, NDArray[np.int64]]] = []
    # A part of the query, and the subqueries around it from outside to inside.
    pending: list[tuple[Expression, tuple[Subquery, ...]]] = [(base, ())]
    while pending:
        node, around = pending.pop()
        if isinstance(node, VectorSelector):
            references.append(_reference(context, node, around))
            continue
        within = (*around, node) if isinstance(node, Subquery) else around
        # The second argument of an inner info() only chooses labels.
        parts = node.args[:1] if isinstance(node, Call) and node.name == "info" else children(node)
        vectors = [part for part in parts if type_of(part) in _VECTORS]
        if not vectors:  # Without vectors, as in vector(1), the values are those of the steps.
            return own
        pending.extend((part, within) for part in vectors)
    is_fixed, times = references[0]
    # A fixed time differs from that of a step, even when a query has one step and both are equal.
    is_shared = all(fixed == is_fixed and np.array_equal(one, times) for fixed, one in references)
    return times if is_shared else own


def _reference(
    context: EvaluationContext, node: VectorSelector, around: tuple[Subquery, ...]
) -> tuple[bool, NDArray[np.int64]]:
    """Whether a selector looks at a fixed time, and the times at which it looks.

    Offsets of the subqueries around it add up, up to the first `@`.
    """
    times, offset_ms = context.times_ms, 0
    parts: tuple[VectorSelector | Subquery, ...] = (node, *reversed(around))
    for part in parts:
        offset_ms += 0 if part.offset is None else context.offset_ms(part.offset)
        if part.at is not None:
            return True, shifted_times(context, replace(part, offset=None)) - offset_ms
    return False, times - offset_ms


def _combined(
    context: EvaluationContext,
    base: Block,
    is_info: NDArray[np.bool_],
    found: tuple[Block, NDArray[np.int64]] | None,
    of_data: Sequence[Matcher],
) -> Block:
    steps = base.steps
    data_names = {matcher.name for matcher in of_data}
    refuses_empty = not all(map(matches_empty, of_data))
    by_key = _by_identity(found[0].labels) if found is not None else {}
    rows: list[int] = []
    labels: list[dict[str, str]] = []
    presents: list[NDArray[np.bool_]] = []
    for row in range(len(base)):
        own = base.labels.row(row)
        candidates = by_key.get(tuple(own.get(name, "") for name in _IDENTIFYING), []) if not is_info[row] else []
        # The info series that a step uses: the newest one for each name. Steps with the same choice share one result.
        choices = np.full((len({name for name, _ in candidates}), steps), -1, np.int64)
        if found is not None and candidates:
            choices = _choices(found, candidates, base.present[row])
        patterns, of_step = np.unique(choices.T, axis=0, return_inverse=True)
        of_step = of_step.reshape(-1)
        for index, pattern in enumerate(patterns.tolist()):
            present = base.present[row] & (of_step == index)
            if not present.any():
                continue
            used = [number for number in pattern if number >= 0]
            if not used and refuses_empty and not is_info[row]:
                continue
            added: dict[str, str] = {}
            for number in used:
                assert found is not None
                _add(added, found[0].labels.row(number), own, data_names)
            rows.append(row)
            labels.append({**own, **added})
            presents.append(present)
    kept = np.array(rows, np.int64)
    present = np.array(presents, np.bool_).reshape(len(rows), steps)
    return replace(base.take(kept), labels=label_sets(context.pool, labels), present=present).merged()


def _by_identity(labels: LabelSets) -> dict[tuple[str, ...], list[tuple[str, int]]]:
    """(name, row) of the info series by their identifying labels."""
    found: dict[tuple[str, ...], list[tuple[str, int]]] = {}
    columns = [labels.texts(name) for name in _IDENTIFYING]
    for row, name in enumerate(labels.texts(METRIC_NAME)):
        found.setdefault(tuple(column[row] for column in columns), []).append((name, row))
    return found


def _choices(
    found: tuple[Block, NDArray[np.int64]], candidates: Sequence[tuple[str, int]], needed: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """The row of the newest info series of each name at each step, int64 (names, steps); -1 without such a series."""
    block, times_ms = found
    names = sorted({name for name, _ in candidates})
    chosen = np.full((len(names), block.steps), -1, np.int64)
    newest_ms = np.full((len(names), block.steps), np.iinfo(np.int64).min, np.int64)
    for name, row in candidates:
        index = names.index(name)
        same = block.present[row] & (chosen[index] >= 0) & (times_ms[row] == newest_ms[index]) & needed
        if same.any():
            at = int(np.flatnonzero(same)[0])
            other = int(chosen[index, at])
            raise EvaluationError(
                f"found duplicate series for info metric: existing {shown_labels(block.labels.row(other))} @ "
                f"{newest_ms[index, at]}, new {shown_labels(block.labels.row(row))} @ {times_ms[row, at]}"
            )
        newer = block.present[row] & (times_ms[row] > newest_ms[index])
        chosen[index][newer] = row
        newest_ms[index][newer] = times_ms[row][newer]
    return chosen


def _add(added: dict[str, str], info: dict[str, str], own: dict[str, str], data_names: set[str]) -> None:
    for name, value in info.items():
        if name == METRIC_NAME or (data_names and name not in data_names):
            continue
        if added.get(name, value) != value:
            raise EvaluationError(f"conflicting label: {name}")
        if name not in own:
            added[name] = value


def _match_all(matchers: Sequence[Matcher], value: str) -> bool:
    return all(matches(matcher, value) for matcher in matchers)


def _escaped(value: str) -> str:
    """A text as a pattern of RE2."""
    return "".join(f"\\{char}" if char in r"\.+*?()|[]{}^$" else char for char in value)
