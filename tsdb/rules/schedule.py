"""Schedule: the groups of all rule files with their states, and which group may be evaluated next at which time.

A group is evaluated at each multiple of its interval, in order, none left out: its times depend on nothing else. A
group that reads what another group records waits until that group has been evaluated at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from tsdb.model.selector import MatchType
from tsdb.model.window import ceil_to
from tsdb.promql.syntax.tree import VectorSelector, post_order
from tsdb.rules.alerts import ALERTS, ALERTS_FOR_STATE, Labels
from tsdb.rules.files import AlertingRule, RuleFile, RuleGroup
from tsdb.rules.groups import RuleGroupState, carried_state, new_state, rule_identity
from tsdb.rules.placement import Partitions
from tsdb.rules.repair import GroupRepairs
from tsdb.selector.selectors import METRIC_NAME


@dataclass(slots=True)
class ScheduledGroup:
    """next_ms: time of the next evaluation; None: the state of an earlier process is not restored yet. needs: groups
    whose records it reads. waits_for: why it is not evaluated now, "" otherwise. evaluated_ms: its last evaluated step.
    evaluated_at_ms: when that evaluation ended, by this process's clock. seconds: its cost.

    owned_ms: since when this process evaluates it; None: another one does. first_ms: its first step, None when an
    earlier process evaluated some; inherited_ms: the last of those, else 0. repairs: its steps to evaluate again;
    repairing: their number. due_ms: when all samples of next_ms should be readable. Both are those of the last step.
    followed: records of the log below these offsets, by partition, do not count for it, since they did before.
    settled_ms: broker time of the log up to which late samples are repaired. is_unsure: samples of next_ms may be in
    the log already. partitions: those that its rules can read.
    """

    group: RuleGroup
    state: RuleGroupState
    next_ms: int | None = None
    needs: tuple[ScheduledGroup, ...] = ()
    waits_for: str = ""
    evaluated_ms: int | None = None
    evaluated_at_ms: int | None = None
    seconds: float = 0.0
    owned_ms: int | None = None
    first_ms: int | None = None
    inherited_ms: int = 0
    repairs: GroupRepairs = field(default_factory=GroupRepairs)
    repairing: int = 0
    due_ms: int | None = None
    followed: dict[int, int] = field(default_factory=dict)
    settled_ms: int = 0
    is_unsure: bool = False
    partitions: Partitions = None

    def reset(self, owned_ms: int | None) -> None:
        """Forget all that this process knew of the group: another process has evaluated it, or will."""
        leftover = frozenset() if owned_ms is None else self.state.leftover
        self.state = replace(new_state(self.group), leftover=leftover)
        self.next_ms, self.evaluated_ms, self.first_ms = None, None, None
        self.inherited_ms = 0
        self.repairs, self.repairing, self.followed, self.settled_ms = GroupRepairs(), 0, {}, 0
        self.waits_for, self.is_unsure, self.owned_ms = "", False, owned_ms

    def may_evaluate(self) -> bool:
        """Whether all groups whose records it reads have been evaluated at next_ms."""
        assert self.next_ms is not None, "a group without a time is restored first"
        return all(one.next_ms is not None and one.next_ms > self.next_ms for one in self.needs)


@dataclass(slots=True)
class RuleSchedule:
    """groups: those that others read come first. ended: series of groups that are gone, each with the time at which it
    gets a stale marker; None: soon. partitions_of: the partitions that a group can read."""

    groups: list[ScheduledGroup] = field(default_factory=list)
    ended: list[tuple[frozenset[Labels], int | None]] = field(default_factory=list)
    partitions_of: Callable[[RuleGroup], Partitions] = lambda _: None

    def renew(self, files: Sequence[RuleFile]) -> None:
        """Take the groups of changed files. Equal groups keep state and time."""
        before = {one.group.key: one for one in self.groups}
        found: list[ScheduledGroup] = []
        for group in (group for file in files for group in file.groups):
            known = before.pop(group.key, None)
            if known is None:
                found.append(ScheduledGroup(group, new_state(group)))
                continue
            state = carried_state(group, known.group, known.state)
            next_ms = known.next_ms
            if next_ms is not None:
                next_ms = ceil_to(next_ms, group.interval_ms)
            found.append(replace(known, group=group, state=state, next_ms=next_ms, repairs=_carried(known, group)))
        by_rule = {rule_identity(rule): one for one in found for rule in one.group.rules} if before else {}
        for gone in before.values():
            series = gone.state.leftover
            for rule, left in zip(gone.group.rules, gone.state.rules, strict=True):
                other = by_rule.get(rule_identity(rule))
                if other is None:
                    series |= left.series
                else:  # The rule has moved. Its new group ends the series that it does not write.
                    other.state = replace(other.state, leftover=other.state.leftover | left.series)
            if series:
                self.ended.append((series, gone.next_ms))
        for one in found:
            one.partitions = self.partitions_of(one.group)
        self.groups = _ordered(found)


def _carried(known: ScheduledGroup, group: RuleGroup) -> GroupRepairs:
    """The repairs of a group whose file has changed. Rules that are not as before are all repaired at all steps."""
    before = known.repairs
    if [rule.query.text for rule in known.group.rules] == [rule.query.text for rule in group.rules]:
        return before
    steps = set().union(*before.steps.values())
    return GroupRepairs({number: set(steps) for number in range(len(group.rules))} if steps else {}, since=before.since)


def _ordered(groups: Sequence[ScheduledGroup]) -> list[ScheduledGroup]:
    """Groups after those that they read. In a circle of groups one of them waits for none of the others."""
    writers: dict[str, list[ScheduledGroup]] = {}
    for one in groups:
        for name in _written(one.group):
            writers.setdefault(name, []).append(one)
    done: list[ScheduledGroup] = []
    finished: set[int] = set()
    for root in groups:
        # A walk without recursion: a chain of groups may be longer than Python's stack.
        stack, opened = [(root, iter(_read_groups(root, writers)))], {id(root)}
        while stack:
            one, left = stack[-1]
            following = next((other for other in left if id(other) not in finished and id(other) not in opened), None)
            if following is not None:
                opened.add(id(following))
                stack.append((following, iter(_read_groups(following, writers))))
                continue
            stack.pop()
            if id(one) not in finished:
                one.needs = tuple(other for other in _read_groups(one, writers) if id(other) in finished)
                finished.add(id(one))
                done.append(one)
    return done


def _read_groups(one: ScheduledGroup, writers: dict[str, list[ScheduledGroup]]) -> list[ScheduledGroup]:
    found = [other for name in _read(one.group) for other in writers.get(name, ()) if other is not one]
    return list({id(other): other for other in found}.values())


def _written(group: RuleGroup) -> set[str]:
    alerts = {ALERTS, ALERTS_FOR_STATE} if any(isinstance(rule, AlertingRule) for rule in group.rules) else set()
    return alerts | {rule.name for rule in group.rules if not isinstance(rule, AlertingRule)}


def _read(group: RuleGroup) -> set[str]:
    """Names of metrics that the rules of a group select by their whole name."""
    return {
        matcher.value
        for rule in group.rules
        for node in post_order(rule.query.node)
        if isinstance(node, VectorSelector)
        for matcher in node.matchers
        if matcher.name == METRIC_NAME and matcher.type is MatchType.EQUAL
    }
