"""Recursion over a query without Python's stack. An error can so name the bound on nesting.

A step of the recursion is a generator. It yields a further step to get its result: `right = yield self.expression(1)`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar, cast

T = TypeVar("T")
Step: TypeAlias = Generator["Step[Any]", Any, T]


def result_of(step: Step[T]) -> T:
    """Run a step and all steps below it. The first exception ends all of them."""
    waiting: list[Step[Any]] = []
    current: Step[Any] = step
    value: Any = None
    while True:
        try:
            below = current.send(value)
        except StopIteration as end:
            value = end.value
            if not waiting:
                return cast(T, value)
            current = waiting.pop()
        else:
            waiting.append(current)
            current, value = below, None
