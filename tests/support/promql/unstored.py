"""Evaluations that need what this store does not keep: start timestamps.

They are set aside, each by a reason that follows from the script.
"""

from __future__ import annotations

from collections.abc import Iterator

from support.promql.evaluation import Evaluation
from support.promql.script import Load
from tsdb.model.selector import Matcher, MatchType
from tsdb.promql.syntax.features import ALL_FEATURES
from tsdb.promql.syntax.parser import parse
from tsdb.promql.syntax.tree import Call, Expression, VectorSelector, children
from tsdb.rules.memory import label_filter
from tsdb.rules.unit_tests.notation import Labels
from tsdb.selector.selectors import METRIC_NAME
from tsdb.selector.tokens import QueryError

_TARGET_INFO = Matcher(MatchType.EQUAL, METRIC_NAME, "target_info")


class Unstored:
    """Which of the loaded series have start timestamps."""

    def __init__(self) -> None:
        self._start_times: set[Labels] = set()

    def load(self, load: Load) -> None:
        """Series of one more command."""
        self._start_times |= load.with_start_times

    def clear(self) -> None:
        """Forget the series of all loads."""
        self._start_times.clear()

    def reason(self, evaluation: Evaluation) -> str | None:
        """The need of an evaluation that the store does not meet; None: it can run."""
        try:
            node = parse(evaluation.query, ALL_FEATURES)
        except QueryError:
            return None
        if any(isinstance(part, Call) and part.name == "start_timestamp" for part in _parts(node)):
            return "start_timestamp()"
        for matchers in _selections(node):
            matches = label_filter(matchers)
            if any(map(matches, self._start_times)):
                return "selects start timestamps"
        return None


def _parts(node: Expression) -> Iterator[Expression]:
    yield node
    for child in children(node):
        yield from _parts(child)


def _selections(node: Expression) -> Iterator[tuple[Matcher, ...]]:
    """The matchers of each selector. info() reads target_info, unless its second argument names another metric."""
    match node:
        case VectorSelector():
            yield node.matchers
        case Call(name="info"):
            yield from _selections(node.args[0])
            matchers = tuple(matcher for one in node.args[1:] for matcher in _selector(one).matchers)
            names = any(matcher.name == METRIC_NAME for matcher in matchers)
            yield matchers if names else (*matchers, _TARGET_INFO)
        case _:
            for child in children(node):
                yield from _selections(child)


def _selector(node: Expression) -> VectorSelector:
    assert isinstance(node, VectorSelector)
    return node
