"""Metrics: has the registry of the process, and constructors that use it.

Each module declares the metrics that it changes, at import. `docs/metrics.md` lists all metrics, and a test compares
the two. Label values known in advance are created at once, so that an unused counter shows 0 instead of nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.metrics import MetricWrapperBase

# `_created` series would double the scraped data, and the process start time gives the same information.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it bare
registry = CollectorRegistry()

PREFIX = "tsdb_"
# From a fast read of a few series up to a request that waits for the fail-over of a broker.
DURATION_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Label = str | tuple[str, ...] | None
Values = Iterable[str | tuple[str, ...]]
_Metric = TypeVar("_Metric", bound=MetricWrapperBase)
# Name and spec of the declaring module, by metric.
_loads: WeakKeyDictionary[MetricWrapperBase, tuple[Any, Any]] = WeakKeyDictionary()


def counter(name: str, help: str, label: Label = None, values: Values = ()) -> Counter:
    """A counter; `name` starts with tsdb_ and ends with _total. `values`: label values (tuples for several labels)."""
    assert name.endswith("_total"), f"counter {name} must end with _total"
    return _with_values(_declared(Counter, name, help, label), values)


def gauge(name: str, help: str, label: Label = None, values: Values = ()) -> Gauge:
    """Declare a gauge; `values` as for `counter`."""
    return _with_values(_declared(Gauge, name, help, label), values)


def histogram(
    name: str, help: str, label: Label = None, values: Values = (), *, buckets: Sequence[float] = DURATION_BUCKETS_S
) -> Histogram:
    """A histogram; `buckets`: ascending upper bounds in the unit at the end of the name (default: seconds)."""
    return _with_values(_declared(Histogram, name, help, label, buckets=buckets), values)


def _declared(kind: type[_Metric], name: str, help: str, label: Label, **more: Any) -> _Metric:
    """A new metric, or after a reload of the module the metric that it had before. Raises ValueError for a name that
    another module has.
    """
    assert name.startswith(PREFIX), f"metric {name} must start with {PREFIX}"
    names = sys._getframe(2).f_globals  # Names of the declaring module. A reload gives it another spec.
    module, load = names.get("__name__"), names.get("__spec__")
    known = registry._names_to_collectors.get(name)
    if isinstance(known, kind) and known in _loads:
        declared_by, declared_in = _loads[known]
        if declared_by == module and declared_in is not load and known._labelnames == _names(label):
            _loads[known] = module, load
            return known
    metric = kind(name, help, _names(label), registry=registry, **more)
    _loads[metric] = module, load
    return metric


def adder(counter: Counter | Gauge) -> Callable[[float], None]:
    """Adds to a metric without labels, or to a child. `inc` takes three times as long: it checks each time what does
    not change."""
    add: Callable[[float], None] = counter._value.inc
    return add


def total(of: Counter) -> int:
    """The value of a counter without labels that counts whole things."""
    return int(next(iter(of.collect())).samples[0].value)


def _names(label: Label) -> tuple[str, ...]:
    if label is None:
        return ()
    return (label,) if isinstance(label, str) else label


def _with_values(metric: _Metric, values: Values) -> _Metric:
    for value in values:
        metric.labels(*((value,) if isinstance(value, str) else value))
    return metric
