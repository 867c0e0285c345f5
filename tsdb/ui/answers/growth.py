"""Growth: groups of series that have more series, or a label more values, than some time ago.

Both numbers come from queries, so they count series with a value at that time, in memory or in history.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.json.rows import valid_text
from tsdb.api.prometheus.pages.query import instant_result
from tsdb.index.cardinality import By
from tsdb.promql.evaluate.vectors.block import Block
from tsdb.selector.selectors import METRIC_NAME
from tsdb.selector.tokens import quoted
from tsdb.ui.link import range_ms
from tsdb.ui.pages.page import PageCall
from tsdb.ui.pages.system.cardinality import AGO, GROWING, by_of, label_name

ROWS_MAX = 50
LABELS_MAX = 10  # Each is a query over all series that have it.


def growth(asked: PageCall) -> bytes:
    """Answers `/ui/growth`. Parameters: `by` as on the page, `ago` one of AGO. The rows with the largest growth come
    first. Raises the errors of `query`, and BadParameter."""
    by, ago = by_of(asked), asked.call.form.get("ago")
    if by not in GROWING:
        raise BadParameter("by", f"growth is known by {', '.join(kind.value for kind in GROWING)}")
    if ago not in AGO:
        raise BadParameter("ago", f"must be one of {', '.join(AGO)}")
    now_ms = asked.call.sources.clock.now_ms()
    now, before = (_counts(asked, by, at_ms) for at_ms in (now_ms, now_ms - range_ms(ago)))
    grown = [(name, count, before.get(name, 0)) for name, count in now.items() if count > before.get(name, 0)]
    grown.sort(key=lambda row: (row[2] - row[1], row[0]))
    answer: dict[str, Any] = {
        "status": "success",
        "ago": AGO[ago],
        "unit": "values" if by is By.LABEL else "series",
        "now": sum(now.values()),
        "before": sum(before.values()),
        "grown_total": len(grown),
        "rows": [
            {"name": valid_text(name), "now": count, "before": earlier} for name, count, earlier in grown[:ROWS_MAX]
        ],
    }
    return orjson.dumps(answer)


def _counts(asked: PageCall, by: By, at_ms: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for text, query in _queries(asked, by):
        block = instant_result(asked.call, query, at_ms).found.value
        assert isinstance(block, Block), "an aggregation is a vector"
        for row in range(len(block)):
            labels = block.labels.row(row)
            name = text or ", ".join(labels.values() if by is By.METRIC else (f"{k}={v}" for k, v in labels.items()))
            found[name] = int(block.values[row, -1])
    return found


def _queries(asked: PageCall, by: By) -> Iterator[tuple[str, str]]:
    """(name, expression) of one group. For all groups together the name is "", and the labels of the result name
    them."""
    every = f'{{{METRIC_NAME}!=""}}'
    if by is By.METRIC:
        yield "", f"count by ({METRIC_NAME}) ({every})"
    elif by is By.SOURCE:
        labels = asked.call.sources.settings()["placement_labels"]
        yield "", f"count by ({', '.join(map(quoted, labels))}) ({every})"
    else:
        largest = asked.call.sources.cardinality(asked.call.running, by, LABELS_MAX)
        for name in map(label_name, largest.groups):
            yield name, f'count(count by ({quoted(name)}) ({{{quoted(name)}!=""}}))'
