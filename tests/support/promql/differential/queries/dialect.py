"""Dialect: the parts of PromQL that a server knows, found out by queries."""

from __future__ import annotations

from dataclasses import dataclass

from support.promql.differential.targets import Target
from tsdb.promql.syntax.functions import AGGREGATIONS, FUNCTIONS

# Functions that Prometheus renamed: name of today -> the one before 3.0.
RENAMED = {"double_exponential_smoothing": "holt_winters"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """functions, aggregations: names. Each flag is a part of the language that came after 2.42. has_native_histograms:
    whether the dataset has series with them."""

    functions: frozenset[str]
    aggregations: frozenset[str]
    has_fill: bool = False
    has_extensions: bool = False
    has_duration_expressions: bool = False
    has_durations_as_numbers: bool = False
    has_empty_offsets: bool = False
    has_quoted_names: bool = False
    has_native_histograms: bool = False


def dialect_of(target: Target) -> Dialect:
    """Ask a server about each part by a query."""
    return Dialect(
        functions=frozenset(name for name in FUNCTIONS if _has_function(target, name)),
        aggregations=frozenset(name for name in AGGREGATIONS if _parses(target, f"{name}({_parameter(name)}up)")),
        has_fill=_parses(target, "up + fill(0) up"),
        has_extensions=_parses(target, "rate(up[1m] smoothed)"),
        has_duration_expressions=_parses(target, "rate(up[1m + 1m])"),
        has_durations_as_numbers=_parses(target, "vector(1m)"),
        has_empty_offsets=_parses(target, "up offset 0s"),
        has_quoted_names=_parses(target, '{"up", "job"="api"}'),
    )


def _has_function(target: Target, name: str) -> bool:
    """A known function complains of its arguments, if at all."""
    failure = target.query(f"{name}()", 0).failure
    return failure is None or f'in call to "{name}"' in failure.message


def _parses(target: Target, text: str) -> bool:
    failure = target.query(text, 0).failure
    return failure is None or failure.kind != "bad_data"


def _parameter(name: str) -> str:
    return {"count_values": '"x", '}.get(name, "1, " if AGGREGATIONS[name] else "")
