"""Parts of the language that Prometheus calls experimental. Names are those of its flags."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Features:
    """Each is off by default, as upstream."""

    experimental_functions: bool = False
    duration_expressions: bool = False
    extended_range_selectors: bool = False
    binop_fill_modifiers: bool = False


ALL_FEATURES = Features(True, True, True, True)
