"""Prints docs/metrics.md (`make docs`): every declared metric, with its help text as the meaning."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.metrics import MetricWrapperBase

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("tsdb", "ingest", "chunker", "spark_backfill")
DECLARES = "from tsdb.ops.metrics import"

INTRODUCTION = """# Metrics

Generated from the help texts in the code; do not edit (`make docs`).

`/metrics` of every role's HTTP address serves these in the Prometheus text format or as OpenMetrics. A role shows the
metrics of the modules that it runs. Labels are bounded: never a series, a label of a sample or a caller's text. Where
values of a label are known beforehand they show 0 from the start. Names and labels are API: a change is a line in the
changelog.

A process of an [experiment](experiments.md) shows the same metrics under other names, with its name as a label:
`tsdb_store_lag_seconds` as `tsdb_experiment_store_lag_seconds`,
`process_open_fds` as `tsdb_experiment_process_open_fds`.

| name | type | labels | meaning |
|---|---|---|---|
"""


@dataclass(frozen=True, order=True)
class Metric:
    """One metric, a row of the table."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str

    def row(self) -> str:
        labels = ", ".join(f"`{label}`" for label in self.labels)
        return f"| `{self.name}` | {self.kind} | {labels} | {self.help} |\n"


def declared() -> list[Metric]:
    """All metrics sorted by name. Imports every module that declares one."""
    for module in _declaring_modules():
        importlib.import_module(module)
    from tsdb.ops.metrics import registry

    # The library offers no public way to list the metrics behind the samples.
    collectors = list(registry._collector_to_names)
    return sorted(metric for collector in collectors for metric in _metrics(collector))


def _metrics(collector: object) -> Iterator[Metric]:
    if isinstance(collector, MetricWrapperBase):
        families, labels = collector.describe(), tuple(collector._labelnames)
    else:
        families, labels = collector.collect(), ()  # type: ignore[attr-defined]  # a Collector by protocol
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield Metric(name, family.type, labels, family.documentation)


def _declaring_modules() -> Iterator[str]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if DECLARES in path.read_text():
                yield ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def render() -> str:
    return INTRODUCTION + "".join(metric.row() for metric in declared())


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.stdout.write(render())
