"""Parts of the language that Prometheus calls experimental. Names are those of its flags."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Features:
    """Defaults are those of Prometheus 3.15."""

    experimental_functions: bool = False
    duration_expressions: bool = True
    extended_range_selectors: bool = False
    binop_fill_modifiers: bool = False


ALL_FEATURES = Features(True, True, True, True)
