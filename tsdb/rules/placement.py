"""Placement of rules: the partitions that a group can read, where its selectors give all placement labels exactly.

Such a group waits for these partitions alone. A selector that leaves a placement label open may read any partition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tsdb.model.labels import canonical_labels
from tsdb.model.partitioner import partition_of
from tsdb.model.placement import PlacementRule
from tsdb.model.selector import Matcher, MatchType
from tsdb.rules.alerts import Labels
from tsdb.rules.files import AlertingRule, RuleGroup
from tsdb.rules.reach import reaches_of
from tsdb.selector.selectors import METRIC_NAME

Partitions: TypeAlias = frozenset[int] | None  # None stands for all partitions.


@dataclass(frozen=True, slots=True)
class RulePlacement:
    """rule: places series. partitions: number of partitions of the log."""

    rule: PlacementRule
    partitions: int

    def of_series(self, labels: Labels) -> int:
        """The partition of a series."""
        return partition_of(self.rule.place(canonical_labels(labels)).placement, self.partitions)

    def of_group(self, group: RuleGroup) -> Partitions:
        """The partitions with all series that the rules of a group select; None: any."""
        found: set[int] = set()
        for rule in group.rules:
            if isinstance(rule, AlertingRule) and _may_query(rule):
                return None
            for reach in reaches_of(rule.query):
                number = self._of_selector(reach.matchers)
                if number is None:
                    return None
                found.add(number)
        return frozenset(found) if 0 < len(found) < self.partitions else None

    def _of_selector(self, matchers: tuple[Matcher, ...]) -> int | None:
        exact = {one.name: one.value for one in matchers if one.type is MatchType.EQUAL}
        if not all(name in exact for name in self.rule.labels):
            return None
        wanted = {name: exact[name] for name in self.rule.labels if exact[name]}
        if not wanted:  # The family of the metric is the placement.
            if METRIC_NAME not in exact:
                return None
            wanted = {METRIC_NAME: exact[METRIC_NAME]}
        return self.of_series(tuple(sorted(wanted.items())))


def _may_query(rule: AlertingRule) -> bool:
    """Whether a template may query series that the expression does not select."""
    templates = [*rule.labels.values(), *rule.annotations.values()]
    return any(not template.is_plain and "query" in template.text for template in templates)
