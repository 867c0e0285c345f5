"""LateMarks finds in the log the samples that come for steps which are evaluated already, and marks these steps.

When the sample is read here, it marks the steps of a rule up to the last evaluated one. A step that is evaluated after
that reads the sample, because reads wait for all records that were looked at. So no sample is missed, whatever the
order of samples, looks and evaluations. A group is not marked by its own writes, because it knows what it changed.
A sample that another process wrote for a rule marks the rule, which is then written again if it is not as it must be.
"""

from __future__ import annotations

from collections import ChainMap, Counter, deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tsdb.model.clock import Clock
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.rules.alerts import Labels
from tsdb.rules.files import AlertingRule, Rule, RuleGroup
from tsdb.rules.follower import FollowedSamples, Follower
from tsdb.rules.groups import RuleSample, comes_later
from tsdb.rules.placement import Partitions
from tsdb.rules.reach import RuleReach, Target, Targets, may_share, outputs_of, reaches_of
from tsdb.rules.schedule import ScheduledGroup

KNOWN_MAX = 1_000_000  # Series whose targets are remembered; all are forgotten when there are more.
IDS_A_READ = 10_000

_late = counter("tsdb_ruler_late_samples_total", "Samples that came for steps of rules that were evaluated already.")
_unrepaired = counter(
    "tsdb_ruler_unrepaired_steps_total",
    "Steps of rules that late samples reach and that are not evaluated again, because they are older than"
    " rules_repair_s.",
)

log = get_logger(__name__)

ReadLabels = Callable[[NDArray[np.uint64], int, int, int, Mapping[int, int]], Mapping[int, Labels]]
"""Labels of series by their ids. Arguments: ids, their partition, first and last time of their samples, the records
that the answer must contain. Raises Unavailable and Overloaded."""


class LateMarks:
    """Used by the thread of the ruler.

    offset_ms: query offset of a group. horizon_ms: steps older than this are not repaired. lookback_ms: as for queries.
    """

    def __init__(
        self,
        follower: Follower,
        labels: ReadLabels,
        clock: Clock,
        offset_ms: Callable[[RuleGroup], int],
        horizon_ms: int,
        lookback_ms: int,
    ) -> None:
        self._follower = follower
        self._labels = labels
        self._clock = clock
        self._offset_ms = offset_ms
        self._horizon_ms = horizon_ms
        self._lookback_ms = lookback_ms
        self._groups: dict[str, ScheduledGroup] = {}
        self._targets = Targets(())
        self._by_id: MutableMapping[int, Sequence[Target]] = {}
        self._sharing: dict[tuple[str, int], list[tuple[ScheduledGroup, int]]] = {}
        self._unmarked: dict[int, deque[FollowedSamples]] = {}
        self._stalled: dict[int, TsdbError] = {}  # Partitions whose samples could not be marked, with the reason.
        # Samples that this process wrote and has not seen in the log yet, with their groups.
        self._written: Counter[tuple[int, int, str]] = Counter()
        self._last_written: dict[int, int] = {}

    def renew(self, groups: Sequence[ScheduledGroup]) -> None:
        """Take the rules of changed files."""
        self._groups = {one.group.key: one for one in groups}
        self._targets = Targets([target for one in groups for target in _targets_of(one.group, self._lookback_ms)])
        self._by_id.clear()
        self._sharing = _sharing(groups)

    def follow(self) -> None:
        """Look at the records that have come, and mark steps. The next call looks again at samples
        that cannot be marked for now, which `check` names. Raises Unavailable and Overloaded of the log."""
        groups = self._groups.values()
        steps = [one.evaluated_ms - self._offset_ms(one.group) for one in groups if one.evaluated_ms is not None]
        newest_ms = max(max(steps, default=0) + self._targets.ahead_ms, self._targets.fixed_ms)
        for found in self._follower.follow(newest_ms):
            self._unmarked.setdefault(found.partition, deque()).append(found)
        self._stalled.clear()
        for partition, waiting in list(self._unmarked.items()):
            try:
                while waiting:
                    self._mark(waiting[0])
                    waiting.popleft()
            except (Unavailable, Overloaded) as error:
                self._stalled[partition] = error
            else:
                del self._unmarked[partition]

    def check(self, partitions: Partitions = None) -> None:
        """Raises Unavailable or Overloaded where samples of these partitions could not be marked by `follow`."""
        for partition, error in self._stalled.items():
            if partitions is None or partition in partitions:
                raise error

    def has_seen_own(self, partitions: Partitions = None) -> bool:
        """Whether `follow` has seen all records of `wrote` and `expect_all` in these partitions."""
        seen = self._follower.next_offsets()
        return all(offset < seen.get(partition, 0) for partition, offset in _of(self._last_written, partitions).items())

    def after(self, partitions: Partitions = None) -> dict[int, int]:
        """The records that each read of these partitions must contain: those that were looked at, and own ones."""
        found = {partition: offset - 1 for partition, offset in self._follower.next_offsets().items() if offset}
        for partition, offset in self._last_written.items():
            found[partition] = max(offset, found.get(partition, offset))
        return {partition: offset for partition, offset in _of(found, partitions).items() if offset >= 0}

    def settled_ms(self) -> int | None:
        """Broker time up to which all samples have marked what they change; None: not known."""
        return None if self._unmarked else self._follower.settled_ms()

    def wrote(
        self, group: str, samples: Sequence[RuleSample], ids: Sequence[int], last_records: Mapping[int, int]
    ) -> None:
        """Take what a group has written; "" for samples that are of no rule. ids: ids of the series.
        last_records: offsets by partition."""
        if len(self._written) > KNOWN_MAX:  # Left over from samples that were refused.
            self._written.clear()
        if group:
            self._written.update((number, sample.ts_ms, group) for number, sample in zip(ids, samples, strict=True))
        for partition, offset in last_records.items():
            self._last_written[partition] = max(offset, self._last_written.get(partition, offset))

    def expect_all(self) -> None:
        """Let `has_seen_own` be False until `follow` has seen all records that the log has now."""
        for partition, end in self._follower.ends().items():
            self._last_written[partition] = max(end - 1, self._last_written.get(partition, -1))

    def rewind(self, restored: Sequence[ScheduledGroup]) -> None:
        """Look again at the records since restored groups were settled. They mark steps of these groups alone."""
        seen, keys = self._follower.next_offsets(), {one.group.key for one in restored}
        for one in self._groups.values():
            if one.next_ms is not None and one.group.key not in keys:
                one.followed = {number: max(offset, one.followed.get(number, 0)) for number, offset in seen.items()}
        self._follower.rewind(min(one.settled_ms for one in restored))

    def mark_dependents(self, one: ScheduledGroup, number: int, at_ms: int, changed: Iterable[RuleSample]) -> None:
        """Mark what changed samples of a rule at at_ms change in its own group: later steps, and later rules at the
        same step."""
        key = one.group.key
        for sample in changed:
            for target in self._targets.of(sample.labels):
                if target.group == key and not target.is_output:
                    times = np.array([sample.ts_ms], np.int64)
                    first_ms = at_ms if target.rule > number else at_ms + 1
                    one.repairs.add(target.rule, (step for step in self._steps(one, target, times) if step >= first_ms))

    def sharing(self, one: ScheduledGroup, number: int, at_ms: int) -> list[tuple[Rule, int | None]]:
        """Other rules that may write series of a rule at the same time, with their numbers in this group or None."""
        ts_ms = at_ms - self._offset_ms(one.group)
        return [
            (other.group.rules[place], place if other is one else None)
            for other, place in self._sharing.get((one.group.key, number), ())
            if (ts_ms + self._offset_ms(other.group)) % other.group.interval_ms == 0
        ]

    def close(self) -> None:
        """Release the reader of the log."""
        self._follower.close()

    def _mark(self, found: FollowedSamples) -> None:
        order = np.argsort(found.series_ids, kind="stable")
        ids, starts = np.unique(found.series_ids[order], return_index=True)
        targets_of = self._find_targets(ids, found)
        ends = [*starts[1:].tolist(), len(order)]
        for number, start, end in zip(ids.tolist(), starts.tolist(), ends, strict=True):
            targets = targets_of.get(number, ())
            if targets:
                rows = order[start:end]
                self._mark_series(number, targets, found.partition, found.ts_ms[rows], found.offsets[rows])

    def _mark_series(
        self,
        number: int,
        targets: Sequence[Target],
        partition: int,
        ts_ms: NDArray[np.int64],
        offsets: NDArray[np.int64],
    ) -> None:
        own = {key: self._own(number, key, ts_ms) for key in {one.group for one in targets if one.is_output}}
        for target in targets:
            one = self._groups[target.group]
            if one.evaluated_ms is None:
                continue
            counts = offsets >= one.followed.get(partition, 0)
            if target.group in own:
                counts &= ~own[target.group]
            if not counts.any():
                continue
            steps = self._steps(one, target, ts_ms[counts])
            if steps:
                _late.inc(int(counts.sum()))
                one.repairs.add(target.rule, steps)
                if one.repairs.since is None:
                    one.repairs.since = self._clock.monotonic()

    def _own(self, number: int, group: str, ts_ms: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which samples of a series this process wrote for a group."""
        found = np.zeros(len(ts_ms), np.bool_)
        for row, time in enumerate(ts_ms.tolist()):
            key = number, time, group
            if self._written.get(key, 0):
                found[row] = True
                self._written[key] -= 1
                if not self._written[key]:
                    del self._written[key]
        return found

    def _steps(self, one: ScheduledGroup, target: Target, ts_ms: NDArray[np.int64]) -> list[int]:
        """The evaluated steps of a group, within the horizon, that these samples can change."""
        interval_ms, offset_ms = one.group.interval_ms, self._offset_ms(one.group)
        assert one.evaluated_ms is not None, "the group was evaluated"
        last = one.evaluated_ms // interval_ms
        horizon = -(-(self._clock.now_ms() - self._horizon_ms) // interval_ms)
        found: set[int] = set()
        for first_ms, last_ms in _stretches(target.reach, np.unique(ts_ms)):
            first = -(-max(first_ms + offset_ms, one.first_ms or 0) // interval_ms)
            end = min((last_ms + offset_ms) // interval_ms, last) + 1
            if first < min(horizon, end):
                _unrepaired.inc(min(horizon, end) - first)
            found.update(range(max(first, horizon), end))
        return [step * interval_ms for step in sorted(found)]

    def _find_targets(self, ids: NDArray[np.uint64], found: FollowedSamples) -> Mapping[int, Sequence[Target]]:
        """Targets by the ids of series. Those without labels, which no read shows, are left out."""
        if len(self._by_id) > KNOWN_MAX:
            self._by_id.clear()
        unknown = np.array([number for number in ids.tolist() if number not in self._by_id], np.uint64)
        unread: MutableMapping[int, Sequence[Target]] = {}
        for start in range(0, len(unknown), IDS_A_READ):
            part = unknown[start : start + IDS_A_READ]
            try:
                first_ms, last_ms = int(found.ts_ms.min()), int(found.ts_ms.max())
                after = self.after(frozenset((found.partition,)))
                labels_of = self._labels(part, found.partition, first_ms, last_ms, after)
            except TsdbError as error:
                if comes_later(error):
                    raise
                log.warning("labels of late samples not read; all rules are repaired", error=error.message)
                unread.update(dict.fromkeys(part.tolist(), self._targets.all))
                continue
            for number, labels in labels_of.items():
                self._by_id[number] = self._targets.of(labels)
        return ChainMap(unread, self._by_id) if unread else self._by_id


def _of(offsets: Mapping[int, int], partitions: Partitions) -> Mapping[int, int]:
    if partitions is None:
        return offsets
    return {partition: offset for partition, offset in offsets.items() if partition in partitions}


def _stretches(reach: RuleReach, ts_ms: NDArray[np.int64]) -> list[tuple[int, int]]:
    """First and last times of stretches that samples at ascending times reach, joined where they touch."""
    joined: list[tuple[int, int]] = []
    for time in ts_ms.tolist():
        times = reach.times(time)
        if times is None:
            continue
        if joined and times[0] <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], times[1])
        else:
            joined.append(times)
    return joined


def _targets_of(group: RuleGroup, lookback_ms: int) -> list[Target]:
    found: list[Target] = []
    for number, rule in enumerate(group.rules):
        found += [Target(group.key, number, reach) for reach in reaches_of(rule.query, lookback_ms)]
        found += [Target(group.key, number, reach, is_output=True) for reach in outputs_of(rule)]
    return found


def _sharing(groups: Sequence[ScheduledGroup]) -> dict[tuple[str, int], list[tuple[ScheduledGroup, int]]]:
    """For each rule the others that may write the same series."""
    by_name: dict[tuple[bool, str], list[tuple[ScheduledGroup, int]]] = {}
    for one in groups:
        for number, rule in enumerate(one.group.rules):
            by_name.setdefault((isinstance(rule, AlertingRule), rule.name), []).append((one, number))
    found: dict[tuple[str, int], list[tuple[ScheduledGroup, int]]] = {}
    for rules in by_name.values():
        for one, number in rules if len(rules) > 1 else ():
            rule = one.group.rules[number]
            found[one.group.key, number] = [
                (other, place)
                for other, place in rules
                if (other is not one or place != number) and may_share(rule, other.group.rules[place])
            ]
    return found
