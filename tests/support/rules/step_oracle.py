"""Oracle of backfills: the groups are evaluated step by step, by the code of a ruler, over samples in memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tsdb.promql.evaluate.query import DEFAULTS, LOOKBACK_MS
from tsdb.rules.alerts import Labels
from tsdb.rules.dependencies import components_of
from tsdb.rules.files import RuleGroup, parse_rules
from tsdb.rules.groups import RuleSample, RuleSurroundings, evaluate_group, new_state
from tsdb.rules.memory import MemoryStorage
from tsdb.rules.vectors import vector_query

Values = dict[tuple[Labels, int], int]  # Bits by series and time.


def groups_of(text: str) -> list[RuleGroup]:
    """The groups of a rule file without its first line."""
    return list(parse_rules(f"groups:\n{text}".encode(), "f").groups)


def values_of(storage: MemoryStorage) -> Values:
    """Bits of all samples by labels and time."""
    return {
        (labels, ts_ms): bits
        for labels, column in storage._columns.items()
        for ts_ms, bits in zip(column.ts_ms, np.array(column.values).view(np.int64).tolist(), strict=True)
    }


def evaluated(groups: Sequence[RuleGroup], storage: MemoryStorage, start_ms: int, end_ms: int, step_ms: int) -> Values:
    """All samples after each step was evaluated by the code of a ruler. Results are added to the storage."""
    ordered = [group for one in components_of(groups, LOOKBACK_MS) for group in one.groups]
    states = {group.key: new_state(group) for group in ordered}

    def write(samples: Sequence[RuleSample]) -> None:
        for written in samples:
            storage.add(written.labels, [(written.ts_ms, written.value)])

    surroundings = RuleSurroundings(vector_query(lambda: storage, DEFAULTS), write)
    for ts_ms in range(start_ms, end_ms, step_ms):
        for group in ordered:
            offset_ms = group.query_offset_ms or 0
            if (ts_ms + offset_ms) % group.interval_ms == 0:
                key = group.key
                states[key] = evaluate_group(group, states[key], ts_ms + offset_ms, offset_ms, surroundings)
    return values_of(storage)
