"""Metrics: the list in which a reader finds a metric by a part of its name or of its help.

Types, helps and units come from the metadata that senders gave; numbers of series from the largest metrics in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.errors import BadParameter
from tsdb.api.prometheus.json.rows import valid_text
from tsdb.index.cardinality import By
from tsdb.model.family import Family
from tsdb.model.labels import parse_labels
from tsdb.model.selector import Matcher, MatchType
from tsdb.selector.selectors import METRIC_NAME
from tsdb.ui.pages.page import PageCall

ROWS_MAX = 200
NAMES_MAX = 200_000  # Names that are compared for one request; the others are left out.
SEARCH_CHARS_MAX = 1_000
COUNTED = 200  # Metrics with a number of series, the largest.
EXAMPLES_MAX = 4
_SUFFIXES = ("_bucket", "_count", "_sum", "_total", "_created", "_info")


def metrics(asked: PageCall) -> bytes:
    """Answers `/ui/metrics`: the metrics that have `search` in their name or help, names first. With `name`, the labels
    of one metric. Raises BadParameter, and as a lookup of labels."""
    form = asked.call.form
    search, name = form.get("search"), form.get("name")
    if max(len(search), len(name)) > SEARCH_CHARS_MAX:
        raise BadParameter("search", f"it has more than {SEARCH_CHARS_MAX} characters")
    if name:
        return orjson.dumps({"status": "success", "labels": [valid_text(one) for one in _labels(asked.call, name)]})
    families = asked.call.sources.families().by_name
    names = _names(asked.call)
    found = matching(search, names, families)
    series = _series(asked)
    answer = {
        "status": "success",
        "total": len(names),
        "found": len(found),
        "rows": [_row(one, family_of(one, families), series.get(one)) for one in found[:ROWS_MAX]],
        "examples": [] if search else examples(names, families),
    }
    return orjson.dumps(answer)


def matching(search: str, names: Iterable[str], families: Mapping[str, Family]) -> list[str]:
    """The names with each word of the search, then those whose help has them; case does not count."""
    words = search.lower().split()
    in_name, in_help = [], []
    for name in names:
        lowered = name.lower()
        if all(word in lowered for word in words):
            in_name.append(name)
            continue
        family = family_of(name, families)
        about = f"{lowered} {family.help.lower()}" if family else lowered
        if all(word in about for word in words):
            in_help.append(name)
    return in_name + in_help


def family_of(name: str, families: Mapping[str, Family]) -> Family | None:
    """The family of a metric. Buckets, sums and counts have that of their histogram."""
    if name in families:
        return families[name]
    suffix = next((one for one in _SUFFIXES if name.endswith(one)), "")
    return families.get(name.removesuffix(suffix)) if suffix else None


def examples(names: Sequence[str], families: Mapping[str, Family]) -> list[dict[str, str]]:
    """Expressions over metrics that are there, one for each kind, with a sentence."""
    found: dict[str, dict[str, str]] = {}
    for name in names:
        if not name.replace("_", "a").replace(":", "a").isalnum() or not name.isascii():
            continue
        kind, text, expression = _example(name, family_of(name, families))
        found.setdefault(kind, {"text": text, "query": expression})
        if len(found) == EXAMPLES_MAX:
            break
    return list(found.values())


def _example(name: str, family: Family | None) -> tuple[str, str, str]:
    """Kind, sentence and expression."""
    kind = family.kind if family else ""
    if name.endswith("_bucket"):
        return (
            "histogram",
            f"The time or size that 95 % of {name.removesuffix('_bucket')} stay below.",
            f"histogram_quantile(0.95, sum by (le) (rate({name}[5m])))",
        )
    if kind == "counter" or name.endswith("_total"):
        return "counter", f"{name} grows; its rate is per second.", f"sum(rate({name}[5m]))"
    if kind == "gauge":
        return "gauge", f"{name} as it is.", name
    return "any", f"The number of series of {name}.", f"count({name})"


def _names(call: ApiCall) -> list[str]:
    with call.storage() as storage:
        return list(storage.label_values(METRIC_NAME, (), None, None))[:NAMES_MAX]


def _labels(call: ApiCall, name: str) -> list[str]:
    matcher = Matcher(MatchType.EQUAL, METRIC_NAME, name)
    with call.storage() as storage:
        return [one for one in storage.label_names((matcher,), None, None) if one != METRIC_NAME]


def _series(asked: PageCall) -> dict[str, int]:
    """The number of series of the largest metrics."""
    found = asked.call.sources.cardinality(asked.call.running, By.METRIC, COUNTED)
    named = ((dict(parse_labels(group.labels)), group.series) for group in found.groups)
    return {labels.get(METRIC_NAME, ""): series for labels, series in named}


def _row(name: str, family: Family | None, series: int | None) -> dict[str, Any]:
    return {
        "name": valid_text(name),
        "kind": valid_text(family.kind) if family else "",
        "help": valid_text(family.help) if family else "",
        "unit": valid_text(family.unit) if family else "",
        "series": series,
    }
