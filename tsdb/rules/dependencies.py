"""Dependencies: which rules read what other rules record, found from their expressions alone.

Groups that read or share records form a component. Components are independent of one another, so that each can be
evaluated over a range of time alone. A selector without a name may read the records of every rule.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from tsdb.model.errors import InvalidRequest
from tsdb.model.selector import MatchType
from tsdb.rules.files import AlertingRule, RuleGroup
from tsdb.rules.reach import RuleReach, may_share, outputs_of, reaches_of
from tsdb.selector.selectors import METRIC_NAME, matches


@dataclass(frozen=True, slots=True)
class RuleComponent:
    """groups: in the order of evaluation. leads_ms: by number of the group, then of the rule, how long before a time
    the values at that time need the records of the rule. stepped: numbers of groups with a rule that reads its own
    records, or those of a later rule: each of their steps needs the one before. sharing: (group, rule) of rules that
    may write series of another rule.
    """

    groups: tuple[RuleGroup, ...]
    leads_ms: tuple[tuple[int, ...], ...]
    stepped: frozenset[int]
    sharing: frozenset[tuple[int, int]]

    @property
    def is_sequential(self) -> bool:
        """Whether values at a time need the values at all times before: alerts do, and rules that read themselves."""
        rules = (rule for group in self.groups for rule in group.rules)
        return bool(self.stepped) or any(isinstance(rule, AlertingRule) for rule in rules)


def may_read(reach: RuleReach, output: RuleReach) -> bool:
    """Whether a selector may match series with the name and the labels of an output."""
    fixed = {one.name: one.value for one in output.matchers}
    return all(matches(one, fixed[one.name]) for one in reach.matchers if one.name in fixed)


@dataclass(frozen=True, slots=True)
class _Edge:
    """A rule that may read the records of another one. Rules are (group, rule) by number."""

    reader: tuple[int, int]
    writer: tuple[int, int]
    reach: RuleReach


def components_of(groups: Sequence[RuleGroup], lookback_ms: int) -> list[RuleComponent]:
    """The components of all groups, in the order of their first groups.

    Raises InvalidRequest: groups that read each other's records in a circle (rule_circle), a rule that reads records of
    another one after its own time or at a fixed time (rule_reads_ahead).
    """
    edges = list(_edges(groups, lookback_ms))
    for edge in edges:
        if edge.reach.newest_ms < 0 or edge.reach.base_ms is not None:
            raise InvalidRequest(
                f"{_shown(groups, edge.reader)} reads what {_shown(groups, edge.writer)} records after its own time or"
                " at a fixed time: backfill first the rule that is read, then the other one in another run",
                reason="rule_reads_ahead",
            )
    shared = list(_shared(groups))
    roots = list(range(len(groups)))
    for one, other in [(edge.reader, edge.writer) for edge in edges] + shared:
        low, high = sorted((_root(roots, one[0]), _root(roots, other[0])))
        roots[high] = low
    members: dict[int, list[int]] = {}
    for number in range(len(groups)):
        members.setdefault(_root(roots, number), []).append(number)
    by_root: dict[int, list[_Edge]] = {}
    for edge in edges:
        by_root.setdefault(_root(roots, edge.reader[0]), []).append(edge)
    sharing = {place for pair in shared for place in pair}
    return [_component(groups, found, by_root.get(root, []), sharing) for root, found in members.items()]


def _root(roots: list[int], number: int) -> int:
    while roots[number] != number:
        roots[number] = roots[roots[number]]
        number = roots[number]
    return number


def _edges(groups: Sequence[RuleGroup], lookback_ms: int) -> Iterator[_Edge]:
    outputs = [
        (group, rule, output)
        for group, one in enumerate(groups)
        for rule, each in enumerate(one.rules)
        for output in outputs_of(each)
    ]
    by_name: dict[str, list[tuple[int, int, RuleReach]]] = {}
    for place in outputs:
        by_name.setdefault(place[2].matchers[0].value, []).append(place)
    for group, one in enumerate(groups):
        for rule, each in enumerate(one.rules):
            for reach in reaches_of(each.query, lookback_ms):
                names = [name for name in _candidates(reach, by_name) if all(_holds(reach, name))]
                for writer_group, writer, output in (place for name in names for place in by_name[name]):
                    if may_read(reach, output):
                        yield _Edge((group, rule), (writer_group, writer), reach)


def _candidates(reach: RuleReach, names: Collection[str]) -> Collection[str]:
    """The names that a selector can match: mostly it gives one."""
    exact = [one.value for one in reach.matchers if one.name == METRIC_NAME and one.type is MatchType.EQUAL]
    if not exact:
        return names
    return exact[:1] if exact[0] in names else ()


def _holds(reach: RuleReach, name: str) -> Iterator[bool]:
    return (matches(one, name) for one in reach.matchers if one.name == METRIC_NAME)


def _shared(groups: Sequence[RuleGroup]) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Pairs of rules that may write the same series."""
    by_name: dict[tuple[bool, str], list[tuple[int, int]]] = {}
    for group, one in enumerate(groups):
        for number, rule in enumerate(one.rules):
            by_name.setdefault((isinstance(rule, AlertingRule), rule.name), []).append((group, number))
    for places in by_name.values():
        for at, first in enumerate(places):
            for second in places[at + 1 :]:
                if may_share(groups[first[0]].rules[first[1]], groups[second[0]].rules[second[1]]):
                    yield first, second


def _component(
    groups: Sequence[RuleGroup], members: Sequence[int], edges: Sequence[_Edge], sharing: set[tuple[int, int]]
) -> RuleComponent:
    order = _ordered(groups, members, edges)
    place = {number: at for at, number in enumerate(order)}
    leads = [[0] * len(groups[number].rules) for number in order]
    readers: dict[tuple[int, int], list[_Edge]] = {}
    stepped: set[int] = set()
    for edge in edges:
        reader, writer = ((place[number], rule) for number, rule in (edge.reader, edge.writer))
        if reader <= writer:
            stepped.add(reader[0])
        readers.setdefault(writer, []).append(edge)
    for at in reversed(range(len(order))):
        for rule in reversed(range(len(leads[at]))):
            for edge in readers.get((at, rule), ()):
                reader = place[edge.reader[0]], edge.reader[1]
                further_ms = leads[reader[0]][reader[1]] if reader > (at, rule) else 0
                # One interval more: the step before the first one says which series end there.
                lead_ms = edge.reach.oldest_ms + further_ms + groups[edge.reader[0]].interval_ms
                leads[at][rule] = max(leads[at][rule], lead_ms)
    shared = frozenset((place[number], rule) for number, rule in sharing if number in place)
    return RuleComponent(
        tuple(groups[number] for number in order), tuple(map(tuple, leads)), frozenset(stepped), shared
    )


def _ordered(groups: Sequence[RuleGroup], members: Sequence[int], edges: Sequence[_Edge]) -> list[int]:
    """Groups after those that they read, in the order of the files otherwise. Raises InvalidRequest (rule_circle)."""
    needs: dict[int, set[int]] = {number: set() for number in members}
    for edge in edges:
        if edge.reader[0] != edge.writer[0]:
            needs[edge.reader[0]].add(edge.writer[0])
    done: dict[int, None] = {}
    while len(done) < len(members):
        ready = [number for number in members if number not in done and needs[number] <= done.keys()]
        if not ready:
            left = [groups[number].key for number in members if number not in done]
            raise InvalidRequest(
                f"the groups {', '.join(left[:5])} read each other's records in a circle, or read a circle: their"
                " values depend on which group is evaluated first; backfill them one after another",
                reason="rule_circle",
            )
        done.update(dict.fromkeys(ready))
    return list(done)


def _shown(groups: Sequence[RuleGroup], place: tuple[int, int]) -> str:
    group = groups[place[0]]
    return f'rule "{group.rules[place[1]].name}" of group "{group.name}" in {group.file}'
