"""Random queries of the drill: half are those of the differential test, half go over all copies of a metric."""

from __future__ import annotations

import random
from collections.abc import Iterator

from support.promql.differential.answers import Query
from support.promql.differential.queries.dialect import Dialect
from support.promql.differential.queries.generator import Generator
from support.promql.differential.queries.selectors import Times
from support.promql.differential.queries.vocabulary import COUNTERS, GAUGES
from support.promql.load.flow import METRIC

WIDE = (
    "sum by (job) (rate({counter}[{range}]))",
    "topk(5, increase({counter}[{range}]))",
    "quantile by (copy) (0.9, {gauge})",
    "sum({gauge})",
    "count by (copy) ({gauge} > 1)",
    "{gauge} offset {range}",
    "max_over_time({gauge}[{range}])",
    "histogram_quantile(0.99, sum by (le, job) (rate(latency_seconds_bucket[{range}])))",
    "memory_bytes / on (job, instance, copy) group_left (version) build_info",
    f"sum by (group) (rate({METRIC}[{{range}}]))",
    f"avg({METRIC})",
)
RANGES = ("1m", "5m", "17m", "1h")


def queries(seed: int, dialect: Dialect, base_ms: int) -> Iterator[Query]:
    """Endless. The same seed gives the same queries."""
    chance = random.Random(seed)
    times = Times(base_ms)
    generator = Generator(seed, dialect, times)
    while True:
        if chance.random() < 0.5:
            yield from generator.queries(1)
        else:
            yield times.query(chance, _wide(chance))


def _wide(chance: random.Random) -> str:
    return chance.choice(WIDE).format(
        counter=chance.choice(list(COUNTERS)), gauge=chance.choice(list(GAUGES)), range=chance.choice(RANGES)
    )
