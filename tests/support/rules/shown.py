"""Groups of a ruler in the states that its pages show: evaluated, waiting for samples, failing, never evaluated."""

from __future__ import annotations

from collections.abc import Sequence

from tsdb.rules.files import parse_rules
from tsdb.rules.groups import RuleSample, RuleSurroundings, VectorSample, evaluate_group, new_state
from tsdb.rules.repair import RepairNote
from tsdb.rules.schedule import ScheduledGroup

AT_MS = 1_435_781_451_500  # The group `one` is evaluated then, and next half a minute later.
RULES = """
groups:
- name: one
  interval: 30s
  limit: 9
  rules:
  - {record: "a:b", expr: "sum ( x )", labels: {team: t}}
  - alert: Fires
    expr: x > 1
    keep_firing_for: 1m
    labels: {severity: "{{ $value }}"}
    annotations: {s: "{{ $labels.job }}"}
  - {alert: Waits, expr: x, for: 5m}
  - {record: fails, expr: y}
- name: two
  rules: [{record: later, expr: x}]
"""


def shown_rules(rules: str = RULES, job: str = "j") -> list[ScheduledGroup]:
    """The second group, which was never evaluated, and the first one at AT_MS, when `x` was 1.5 for one job and `y`
    had the same series twice. Late samples corrected the alert at two steps."""

    def query(text: str, at_ms: int) -> Sequence[VectorSample]:
        if text == "sum ( x )":
            return []
        return [VectorSample({"__name__": "x", "job": job}, 1.5)] * (2 if text == "y" else 1)

    def ignore(samples: Sequence[RuleSample]) -> None:
        """The pages show no samples."""

    one, two = parse_rules(rules.encode(), "f.yaml").groups
    state = evaluate_group(one, new_state(one), AT_MS, 0, RuleSurroundings(query, ignore))
    evaluated = ScheduledGroup(
        one, state, AT_MS + 30_000, (), "partition 1 is behind", AT_MS, AT_MS + 20, 0.25, due_ms=AT_MS + 45_000
    )
    for from_ms in (1_435_781_400_000, 1_435_781_430_000):
        note = RepairNote((("alertname", "Fires"),), "inactive", "firing", from_ms, from_ms, 1_435_781_460_000)
        evaluated.repairs.note(1, note)
    return [ScheduledGroup(two, new_state(two)), evaluated]
