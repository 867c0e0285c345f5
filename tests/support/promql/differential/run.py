"""Run: queries put to both sides, with their outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from support.promql.differential.answers import Answer, Query
from support.promql.differential.difference import Difference, Order, difference
from support.promql.differential.parts import order_of
from support.promql.differential.rules import Case, Rule
from support.promql.differential.shrinking import shrunk
from support.promql.differential.targets import Target, ask

# Prometheus walks maps in random order: among equal values topk chooses another series each time.
ASKED_TIMES_MAX = 8
UNSTABLE = "the answers of the server differ among themselves"


@dataclass(frozen=True, slots=True)
class Outcome:
    """excuse: the name of the rule that a difference falls under, empty without one."""

    answer: Answer
    difference: Difference | None = None
    excuse: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """A query with its difference, and a smaller one with the same kind of difference."""

    query: Query
    difference: Difference
    smaller: Query
    smaller_difference: Difference

    def __str__(self) -> str:
        smaller = "" if self.smaller == self.query else f"\n  smaller: {self.smaller}\n  {self.smaller_difference}"
        return f"{self.query}\n  {self.difference}{smaller}"


@dataclass(slots=True)
class Report:
    """shapes: kinds of the answers that are equal. excused: differences by the name of their rule."""

    shapes: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)

    def __str__(self) -> str:
        shapes = ", ".join(f"{count} {shape}" for shape, count in self.shapes.most_common())
        counts = f"{self.shapes.total()} equal ({shapes}), {self.excused.total()} under rules"
        rules = "".join(f"\n{count:6} {name}" for name, count in self.excused.most_common())
        found = "".join(f"{one}\n\n" for one in self.found)
        return f"{found}{counts}, {len(self.found)} different{rules}"


@dataclass(frozen=True, slots=True)
class Run:
    """rules: known differences of the server `theirs`. with_annotations: whether those of the server have the words of
    3.15.
    """

    ours: Target
    theirs: Target
    rules: Sequence[Rule]
    with_annotations: bool

    def compare(self, queries: Iterable[Query], *, differences_max: int) -> Report:
        """Put all queries, up to a number of differences without an excuse."""
        report = Report()
        for query in queries:
            outcome = self.outcome(query)
            if outcome.difference is None:
                report.shapes[_shape(outcome.answer)] += 1
            elif outcome.excuse:
                report.excused[outcome.excuse] += 1
            else:
                report.found.append(self.found(query, outcome.difference))
                if len(report.found) >= differences_max:
                    break
        return report

    def outcome(self, query: Query) -> Outcome:
        """Put one query to both sides."""
        ours, theirs = ask(self.ours, query), ask(self.theirs, query)
        order = order_of(query.text)
        found = self._difference(ours, theirs, order)
        if found is None:
            return Outcome(theirs)
        for _ in range(ASKED_TIMES_MAX - 1):
            again = ask(self.theirs, query)
            if self._difference(ours, again, order) is None:
                return Outcome(again)
            if self._difference(again, theirs, order) is not None:
                return Outcome(theirs, found, UNSTABLE)
        case = Case(query, ours, theirs, found.kind)
        return Outcome(theirs, found, next((rule.name for rule in self.rules if rule.explains(case)), ""))

    def found(self, query: Query, difference: Difference) -> Found:
        """Look for a smaller query with such a difference."""
        smallest = difference

        def differs_alike(smaller: Query) -> bool:
            nonlocal smallest
            outcome = self.outcome(smaller)
            if outcome.difference is None or outcome.difference.kind is not difference.kind or outcome.excuse:
                return False
            smallest = outcome.difference
            return True

        return Found(query, difference, shrunk(query, differs_alike), smallest)

    def _difference(self, ours: Answer, theirs: Answer, order: Order) -> Difference | None:
        return difference(ours, theirs, order, with_annotations=self.with_annotations)


def _shape(answer: Answer) -> str:
    if answer.failure is not None:
        return answer.failure.kind
    return answer.kind if answer.rows or answer.kind == "string" else "empty"
