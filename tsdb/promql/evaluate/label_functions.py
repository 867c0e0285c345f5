"""label_replace and label_join: they change labels, whatever the samples are."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import re2
from numpy.typing import NDArray

from tsdb.model.errors import InvalidRequest
from tsdb.promql.evaluate.context import EvaluationContext
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.promql.evaluate.vectors.labels import METRIC_NAME, distinct
from tsdb.selector.pattern import REGEX_BYTES_MAX

KEPT_BYTES_MAX = 4096  # Bytes of a pattern that `re2.compile` keeps beside 127 others.
MEMORY_BYTES_MAX = 8 << 20  # Memory of one compiled pattern.

# As in Go's Regexp.Expand, `$name` takes as many letters as there are, `${name}` ends at the brace, and `$$` is a
# dollar.
_REFERENCE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})", re.ASCII)


Relabel = Callable[[EvaluationContext, Block], Block]


def label_replace(texts: Sequence[str]) -> Relabel:
    """texts: destination, replacement, source, pattern, which matches a whole value. Raises EvaluationError."""
    destination, replacement, source, pattern = texts
    matcher = _compiled(pattern)
    _check_name("invalid destination label name in label_replace()", destination)
    names: dict[str, int] = {name.decode(): number for name, number in matcher.groupindex.items()}

    def replaced(value: str) -> str | None:
        found = matcher.fullmatch(value.encode(errors="surrogateescape"))
        if found is None:
            return None
        groups = [found.group(number) or b"" for number in range(matcher.groups + 1)]
        return _expanded(replacement, groups, names)

    def relabel(context: EvaluationContext, block: Block) -> Block:
        changed, where = _changed(context, block.labels.column(source), replaced)
        column = np.where(where, changed, block.labels.column(destination)).astype(np.int32)
        return _with_label(block, destination, column, where)

    return relabel


def label_join(texts: Sequence[str]) -> Relabel:
    """Build the function of label_join. texts: destination, separator, sources. Raises EvaluationError."""
    destination, separator, *sources = texts
    for source in sources:
        _check_name("invalid source label name in label_join()", source)
    _check_name("invalid destination label name in label_join()", destination)

    def relabel(context: EvaluationContext, block: Block) -> Block:
        columns = [block.labels.texts(name) for name in sources] or [[""] * len(block)]
        joined = map(separator.join, zip(*columns, strict=True))
        numbers = np.fromiter(map(context.pool.number, joined), np.int32, len(block))
        return _with_label(block, destination, numbers, np.ones(len(block), np.bool_))

    return relabel


def _changed(
    context: EvaluationContext, numbers: NDArray[np.int32], change: Callable[[str], str | None]
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """The numbers of the values that `change` gives, and whether it gave one. It is called once for each value."""
    found, places = distinct(numbers)
    texts = [change(context.pool.text(number)) for number in found]
    changed = np.array([0 if text is None else context.pool.number(text) for text in texts], np.int32)
    there = np.array([text is not None for text in texts], np.bool_)
    return changed[places], there[places]


def _with_label(block: Block, name: str, numbers: NDArray[np.int32], where: NDArray[np.bool_]) -> Block:
    loses_name = block.loses_name & ~where if name == METRIC_NAME else block.loses_name
    changed = replace(block, labels=block.labels.with_column(name, numbers), loses_name=loses_name)
    return changed.merged()


def _compiled(pattern: str) -> re2._Regexp:
    options = re2.Options()
    options.dot_nl, options.log_errors, options.max_mem = True, False, MEMORY_BYTES_MAX
    problem = f"invalid regular expression in label_replace(): {pattern}"
    encoded = pattern.encode(errors="surrogateescape")
    if len(encoded) > REGEX_BYTES_MAX:
        raise InvalidRequest(
            f"regular expression of {len(encoded)} bytes in label_replace(); limit is {REGEX_BYTES_MAX}",
            reason="regex_too_large",
        )
    try:
        return (re2.compile if len(encoded) <= KEPT_BYTES_MAX else re2._Regexp)(encoded, options)
    except re2.error:
        raise EvaluationError(problem) from None


def _expanded(replacement: str, groups: Sequence[bytes], names: dict[str, int]) -> str:
    def value(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(2)
        if name is None:
            return "$"
        number = int(name) if name.isdecimal() else names.get(name, len(groups))
        return groups[number].decode(errors="surrogateescape") if number < len(groups) else ""

    return _REFERENCE.sub(value, replacement)


def _check_name(problem: str, name: str) -> None:
    """A label name is any UTF-8 text that is not empty."""
    try:
        name.encode()
    except UnicodeEncodeError:
        name = ""
    if not name:
        raise EvaluationError(f"{problem}: {name}")
