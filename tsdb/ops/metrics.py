"""Metrics: the registry of the process, and constructors bound to it.

Each module declares the metrics that it changes, at import. `docs/metrics.md` lists all metrics, and a test compares
the two. Label values known in advance are created at once, so that an unused counter shows 0 instead of nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.metrics import MetricWrapperBase

# `_created` series would double the scraped data, and the process start time gives the same information.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it bare
registry = CollectorRegistry()

PREFIX = "tsdb_"
# From a fast read of a few series to a request that waits for a broker's fail-over.
DURATION_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Label = str | tuple[str, ...] | None
Values = Iterable[str | tuple[str, ...]]
_Metric = TypeVar("_Metric", bound=MetricWrapperBase)


def counter(name: str, help: str, label: Label = None, values: Values = ()) -> Counter:
    """A counter; `name` starts with tsdb_ and ends with _total. `values`: label values (tuples for several labels)."""
    assert name.endswith("_total"), f"counter {name} must end with _total"
    return _with_values(Counter(_checked(name), help, _names(label), registry=registry), values)


def gauge(name: str, help: str, label: Label = None, values: Values = ()) -> Gauge:
    """A gauge; `values` as for `counter`."""
    return _with_values(Gauge(_checked(name), help, _names(label), registry=registry), values)


def histogram(
    name: str, help: str, label: Label = None, values: Values = (), *, buckets: Sequence[float] = DURATION_BUCKETS_S
) -> Histogram:
    """A histogram; `buckets`: ascending upper bounds in the unit at the end of the name (default: seconds)."""
    return _with_values(Histogram(_checked(name), help, _names(label), registry=registry, buckets=buckets), values)


def total(of: Counter) -> int:
    """The value of a counter without labels that counts whole things."""
    return int(next(iter(of.collect())).samples[0].value)


def _names(label: Label) -> tuple[str, ...]:
    if label is None:
        return ()
    return (label,) if isinstance(label, str) else label


def _checked(name: str) -> str:
    assert name.startswith(PREFIX), f"metric {name} must start with {PREFIX}"
    return name


def _with_values(metric: _Metric, values: Values) -> _Metric:
    for value in values:
        metric.labels(*((value,) if isinstance(value, str) else value))
    return metric
