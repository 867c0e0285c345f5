"""Parts of the language that Prometheus calls experimental. Names are those of its flags."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple


class Features(NamedTuple):
    """Defaults are those of Prometheus 3.15."""

    experimental_functions: bool = False
    duration_expressions: bool = True
    extended_range_selectors: bool = False
    binop_fill_modifiers: bool = False
    start_timestamps: bool = False


ALL_FEATURES = Features(True, True, True, True, True)


def features_named(enabled: Collection[str]) -> Features:
    """The parts that these flags of Prometheus enable; other names have no effect."""
    return Features(
        experimental_functions="promql-experimental-functions" in enabled,
        extended_range_selectors="promql-extended-range-selectors" in enabled,
        binop_fill_modifiers="promql-binop-fill-modifiers" in enabled,
        start_timestamps="use-start-timestamps" in enabled,
    )
